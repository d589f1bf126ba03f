"""What `ggpy top` shows of a server: two tables, of what it does and of how long that takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.table import Table
from rich.text import Text

from ggpy.errors import printable
from ggpy.tools.metrics_page import Buckets, Span, quantile
from ggpy.tools.terminal import table

QUANTILES = (0.5, 0.95, 0.99)
TIMES = {
    "time_to_first_token_seconds": "first token",
    "inter_token_latency_seconds": "between tokens",
    "e2e_request_latency_seconds": "whole request",
    "request_queue_time_seconds": "in the queue",
    "request_prefill_time_seconds": "reading prompt",
    "request_decode_time_seconds": "generating",
    "step_seconds": "step",
    "forward_seconds": "forward pass",
}
USES = {"held": ("█", "green"), "idle": ("▒", "cyan"), "free": ("░", "bright_black")}
BAR_CELLS = 20


def activity(span: Span) -> Table:
    """What the server does; what its page does not tell is left out."""
    result = table()
    for name, text in _activity(span):
        result.add_row(name, text)
    return result


def times(span: Span) -> Table | None:
    """Quantiles of the server's histograms; None if it has none."""
    if not any(span.now.buckets(f"ggpy:{name}") for name in TIMES):
        return None
    result = table("", f"last {span.seconds:.0f} s", "", "", "since start", "", "")
    result.add_row("", *("p50", "p95", "p99") * 2, style="bold")
    for column in result.columns[1:]:
        column.justify, column.no_wrap, column.min_width = "right", True, 8
    for name, title in TIMES.items():
        cells = [_quantiles(buckets.buckets(f"ggpy:{name}")) for buckets in (span, span.now)]
        result.add_row(title, *cells[0], *cells[1])
    return result


def _quantiles(buckets: Buckets) -> list[str]:
    last = max((bound for bound, _ in buckets if math.isfinite(bound)), default=0.0)
    found = [quantile(buckets, q) for q in QUANTILES]
    return ["-" if value is None else seconds(value) if math.isfinite(value) else f"> {seconds(last)}"
            for value in found]


def _activity(span: Span) -> Iterator[tuple[str, str | Text]]:
    yield "requests", _requests(span)
    yield "tokens/s", _speeds(span)
    if text := _steps(span):
        yield "steps", text
    if text := _cache(span):
        yield "prompt cache", text
    causes = span.now.by_label("ggpy:prefix_cache_misses_total", "cause")
    if causes:
        yield "misses", _counts({cause.replace("_", " "): n for (cause,), n in causes.items() if cause != "none"})
    yield from _pages(span)
    if text := _drafts(span):
        yield "drafts", text
    preempted = span.now.value("ggpy:num_preemptions_total")
    if preempted is not None:
        yield "preempted", f"{number(preempted)}"


def _requests(span: Span) -> str:
    parts = {"running": span.now.value("llamacpp:requests_processing"),
             "waiting": span.now.value("llamacpp:requests_deferred"),
             "refused": span.now.value("ggpy:requests_rejected_total")}
    text = _joined(f"{number(value)} {name}" for name, value in parts.items() if value is not None)
    reasons = span.now.by_label("ggpy:requests_finished_total", "reason")
    return _joined([text, "ended: " + _counts({name: n for (name,), n in reasons.items()})]) if reasons else text


def _speeds(span: Span) -> str:
    parts = {"generated": span.per_second("llamacpp:tokens_predicted_total"),
             "read": span.per_second("llamacpp:prompt_tokens_total"),
             "per stream": span.now.value("llamacpp:predicted_tokens_seconds")}
    return _joined(f"{number(value)} {name}" for name, value in parts.items() if value is not None)


def _steps(span: Span) -> str:
    """Steps per second and what one of them serves; of llama-server only the average since its start."""
    per_second = span.per_second("llamacpp:n_decode_total")
    if per_second is None:
        return ""
    parts = [f"{number(per_second)}/s"]
    n_steps, step_s = span.growth("ggpy:step_seconds_count"), span.growth("ggpy:step_seconds_sum")
    if n_steps > 0:
        parts += [f"{_counted(span.growth('ggpy:step_requests_sum') / n_steps, 'request')} each",
                  _counted(span.growth("ggpy:step_tokens_sum") / n_steps, "token"),
                  f"{percent(span.growth('ggpy:forward_seconds_sum'), step_s)} in the forward pass"]
    elif span.now.value("ggpy:step_seconds_count") is None:
        busy = span.now.value("llamacpp:n_busy_slots_per_decode")
        parts += [f"{_counted(busy, 'request')} each since start"] if busy is not None else []
    return _joined(parts)


def _counted(value: float, thing: str) -> str:
    text = number(value)
    return f"{text} {thing}{'' if text == '1' else 's'}"


def _cache(span: Span) -> str:
    """The share of prompt tokens that need not be computed."""
    hits, computed = "llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"
    n_hits = span.now.value(hits)
    if n_hits is None:
        return ""
    n_all, n_new = n_hits + (span.now.value(computed) or 0.0), span.growth(hits)
    return _joined([f"{percent(n_new, n_new + span.growth(computed))} of prompt tokens",
                    f"{percent(n_hits, n_all)} since start", f"{_counted(n_hits, 'token')} not computed"])


def _pages(span: Span) -> Iterator[tuple[str, Text]]:
    """A bar for each group of layers that has pages of its own, which are numbered if there are several."""
    pages = span.now.by_label("ggpy:kv_pages", "group", "use")
    groups = sorted({group for group, _ in pages})
    for group in groups:
        uses = {use: pages.get((group, use), 0.0) for use in USES}
        yield "KV pages" if len(groups) == 1 else f"KV group {printable(group)}", _bar(uses)


def _bar(uses: dict[str, float]) -> Text:
    """Shares of `uses` as cells, the last kind filling up; a few pages show as one cell."""
    text, n_left, total = Text(), BAR_CELLS, sum(uses.values())
    for use, n_pages in uses.items():
        mark, style = USES[use]
        n_cells = n_left if use == "free" else min(n_left, math.ceil(BAR_CELLS * n_pages / total)) if total else 0
        text.append(mark * n_cells, style)
        n_left -= n_cells
    for use, n_pages in uses.items():
        mark, style = USES[use]
        text.append(f"  {mark} ", style).append(f"{number(n_pages)} {use}")
    return text


def _drafts(span: Span) -> str:
    """What became of drafted tokens; nothing if there never was one."""
    drafted, accepted, drafts = (f"llamacpp:spec_decode_num_{name}_total"
                                 for name in ("draft_tokens", "accepted_tokens", "drafts"))
    n_drafted, n_accepted = span.now.value(drafted), span.now.value(accepted)
    if not n_drafted or n_accepted is None:
        return ""
    parts = [f"{percent(span.growth(accepted), span.growth(drafted))} accepted",
             f"{percent(n_accepted, n_drafted)} since start"]
    n_drafts = span.now.value(drafts)
    return _joined([*parts, f"{_counted(n_accepted / n_drafts, 'token')} of a draft"] if n_drafts else parts)


def _counts(counts: dict[str, float]) -> str:
    return ", ".join(f"{number(n)} {printable(name)}" for name, n in sorted(counts.items()))


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(parts)


def number(value: float) -> str:
    """A count or an average in few digits."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%" if whole > 0 else "-"


def seconds(value: float) -> str:
    """A time in three digits."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
