"""The formats of texts that JSON schemas name, as regular expressions."""

from __future__ import annotations

_DATE = (r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
         r"|02-(?:0[1-9]|[12][0-9]))")
_TIME = (r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
         r"(?:[zZ]|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])")
_DAYS = r"(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
_HOURS = r"T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)"

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+\-/=?\^_`{|}~]+"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join((       # RFC 3986, section 3.2.2
    rf"(?:{_H16}:){{6}}{_LS32}",
    rf"::(?:{_H16}:){{5}}{_LS32}",
    *(rf"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)),
    rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
    rf"(?:(?:{_H16}:){{0,6}}{_H16})?::"))

_UNRESERVED = r"A-Za-z0-9\-._~!$&'()*+,;="
_ESCAPED = "%[0-9A-Fa-f]{2}"
_PCHAR = rf"(?:[{_UNRESERVED}:@]|{_ESCAPED})"
_QUERY = rf"(?:[{_UNRESERVED}:@/?]|{_ESCAPED})*"
_AUTHORITY = (rf"(?:(?:[{_UNRESERVED}:]|{_ESCAPED})*@)?(?:\[(?:{_IPV6})\]|(?:[{_UNRESERVED}]|{_ESCAPED})*)(?::[0-9]*)?")
_PATH = rf"(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|(?:{_PCHAR}+(?:/{_PCHAR}*)*)?)"

REGEXES = {
    "date": _DATE, "time": _TIME, "date-time": f"{_DATE}[tT]{_TIME}",
    "duration": f"P(?:[0-9]+W|{_DAYS}(?:{_HOURS})?|{_HOURS})",
    "hostname": _HOSTNAME, "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOSTNAME}",
    "ipv4": _IPV4, "ipv6": _IPV6, "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+\-.]*:{_PATH}(?:\?{_QUERY})?(?:#{_QUERY})?",
}
