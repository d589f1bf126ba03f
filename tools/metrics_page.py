"""The metrics page of a server: fetched, parsed, and compared with an earlier one."""

from __future__ import annotations

import http.client
import math
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from ggpy.errors import ConfigError, GgpyError, printable, shown
from ggpy.tools.no_answer import why_no_answer

TIMEOUT_S = 5.0
MAX_BYTES = 16 << 20                # no metrics page is longer
KNOWN = ("ggpy:", "llamacpp:")      # how the names begin that tell whose page it is

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]       # name -> labels and value of each
Buckets = Sequence[tuple[float, float]]                                 # upper bound, observations up to it


class NoMetricsError(GgpyError):
    """There is no metrics page to be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a metrics page said at one moment."""

    time_s: float
    samples: Samples

    def value(self, name: str) -> float | None:
        """The value of a metric, added up over its labels; None if the page does not have it."""
        found = self.samples.get(name)
        return None if found is None else sum(value for _, value in found)

    def by_label(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values of a metric by the values of `labels`."""
        values: dict[tuple[str, ...], float] = defaultdict(float)
        for found, value in self.samples.get(name, ()):
            values[tuple(found.get(label, "") for label in labels)] += value
        return dict(values)

    def buckets(self, name: str) -> Buckets:
        """The buckets of a histogram; none if the page does not have it."""
        return sorted((float(bound), n) for (bound,), n in self.by_label(f"{name}_bucket", "le").items())


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two scrapes of one server."""

    before: Scrape
    now: Scrape

    @property
    def seconds(self) -> float:
        return self.now.time_s - self.before.time_s

    @property
    def has_restart(self) -> bool:
        """Whether the server is another one by now: a counter has fallen."""
        return any((self.before.value(name) or 0) > (self.now.value(name) or 0)
                   for name in self.before.samples if name.endswith(("_total", "_count")))

    def growth(self, name: str) -> float:
        """How much a counter has grown."""
        return (self.now.value(name) or 0.0) - (self.before.value(name) or 0.0)

    def per_second(self, name: str) -> float | None:
        """How fast a counter grows, NaN while no time has passed; None if the page does not have it."""
        if self.now.value(name) is None:
            return None
        return self.growth(name) / self.seconds if self.seconds > 0 else math.nan

    def buckets(self, name: str) -> Buckets:
        """The observations of a histogram that were made meanwhile."""
        before = dict(self.before.buckets(name))
        return [(bound, n - before.get(bound, 0.0)) for bound, n in self.now.buckets(name)]


def quantile(buckets: Buckets, q: float) -> float | None:
    """The value that a share `q` of the observations do not exceed, evenly spread in their bucket as Prometheus's
    histogram_quantile has them; infinite beyond the last bound, None without observations.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank = q * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, n in buckets:
        if n >= rank and n > below:
            return math.inf if math.isinf(bound) else low + (bound - low) * (rank - below) / (n - below)
        low, below = bound, n
    return math.inf


def metrics_url(text: str) -> str:
    """The URL that `text` means: host and port will do, a port alone is of this machine, and /metrics is where the page
    is. Raises ConfigError.
    """
    url = text if "://" in text else f"http://{'127.0.0.1:' if text.isdecimal() else ''}{text}"
    try:
        parts = urllib.parse.urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        is_usable = False
    if not is_usable or any(c.isspace() or not c.isprintable() for c in text):
        raise ConfigError(f"expected the URL of a server, such as http://127.0.0.1:8080, not {shown(text)}")
    return urllib.parse.urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else "/metrics"))


def fetch(url: str, api_key: str | None = None) -> str:
    """The text at `url`. Raises NoMetricsError."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    # straight to the server: a proxy would look for 127.0.0.1 on a machine of its own
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            data: bytes = response.read(MAX_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            raise NoMetricsError(f"{url}: {_refusal(error.code)}") from None
    except urllib.error.URLError as error:
        raise NoMetricsError(f"{url}: {why_no_answer(error.reason, TIMEOUT_S)}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoMetricsError(f"{url}: {why_no_answer(error, TIMEOUT_S)}") from None
    return data.decode("utf-8", "replace")


def _refusal(code: int) -> str:
    """What a status other than 200 means here."""
    match code:
        case 401 | 403:
            return f"the server wants a key ({code}); give it with --api-key"
        case 404:
            return "there is no such page (404); metrics are usually at /metrics"
        case 501:
            return "the server does not show metrics (501); start it with --metrics"
        case 503:
            return "the server is not ready (503); it may still be loading its model"
    return f"the server answers with status {code} instead of metrics"


def parse(url: str, text: str, time_s: float) -> Scrape:
    """The page `text` that `url` had at `time_s`. Raises NoMetricsError if it has none of ggpy or llama-server."""
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples[sample.name].append((sample.labels, sample.value))
    except ValueError:
        samples.clear()
    if not any(name.startswith(KNOWN) for name in samples):
        found = f"the metrics of something else ({printable(min(samples))}, ...)" if samples else \
            f"{shown(text[:40])}" if text.strip() else "an empty page"
        raise NoMetricsError(f"{url}: expected metrics of ggpy or llama-server, found {found}")
    return Scrape(time_s, samples)
