"""Why a server did not answer, in words that say what to do."""

from __future__ import annotations

import http.client

from ggpy.errors import printable


def why_no_answer(reason: object, timeout_s: float | None = None) -> str:
    """What `reason`, an exception of urllib or aiohttp or a text, means; `timeout_s` is how long was waited."""
    reason = getattr(reason, "os_error", reason)        # aiohttp's errors have the system's in them
    if isinstance(reason, ConnectionRefusedError):
        return "nobody listens there; start the server, or give the URL of the one that you mean"
    if isinstance(reason, TimeoutError):
        return "no answer in time" if timeout_s is None else f"no answer within {timeout_s:.0f} s"
    if isinstance(reason, http.client.HTTPException) or hasattr(reason, "request_info"):    # aiohttp's of bad replies
        return "what answers there does not speak HTTP"
    return printable(str(getattr(reason, "strerror", None) or reason)) or "the connection broke"
