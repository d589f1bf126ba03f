"""What a serving benchmark prints and draws."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ggpy.errors import ConfigError
from ggpy.tools.bench_serve_stats import Summary

Better = Literal["", "lower", "higher"]
LATENCIES = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("itl_ms", "ITL"), ("e2e_ms", "end to end"))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of all runs; `better` says which way, if one can be better than another."""

    label: str
    value: Callable[[Summary], float | int | None]
    digits: int = 0
    better: Better = ""

    def cell(self, summary: Summary) -> str:
        value = self.value(summary)
        return "-" if value is None else f"{value:,.{self.digits}f}"

    def ratio(self, ours: Summary, theirs: Summary) -> str:
        """How many times as good ours is; empty if that means nothing."""
        a, b = self.value(ours), self.value(theirs)
        if not self.better or not a or not b:
            return ""
        return f"{b / a if self.better == 'lower' else a / b:.2f}"


def _latency(name: str, quantile: str) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        found: dict[str, float] | None = getattr(summary, name)
        return None if found is None else found[quantile]

    return value


def _percent(name: str) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        share: float | None = getattr(summary, name)
        return None if share is None else 100 * share

    return value


ROWS = (
    Row("requests", lambda s: s.n_requests),
    Row("rejected", lambda s: s.n_rejected),
    Row("failed", lambda s: s.n_failed),
    Row("duration [s]", lambda s: s.duration_s, 1),
    Row("prompt tokens", lambda s: s.n_prompt),
    Row("output tokens", lambda s: s.n_output),
    *(Row(f"{label} {quantile} [ms]", _latency(name, quantile), 1, "lower")
      for name, label in LATENCIES for quantile in ("p50", "p95", "p99", "max")),
    Row("output tokens/s", lambda s: s.output_tokens_per_s, 1, "higher"),
    Row("total tokens/s", lambda s: s.total_tokens_per_s, 1, "higher"),
    Row("requests/s", lambda s: s.requests_per_s, 2, "higher"),
    Row("good requests/s", lambda s: s.goodput_per_s, 2, "higher"),
    Row("cached [%]", _percent("hit_rate"), 1, "higher"),
    Row("cached at best [%]", _percent("hit_rate_unlimited"), 1),
    Row("cached at best in the pool [%]", _percent("hit_rate_lru"), 1),
    Row("pool [tokens]", lambda s: s.pool_tokens),
    Row("distinct tokens", lambda s: s.n_unique),
    Row("preemptions", lambda s: s.n_preempted),
)


def table(summaries: Sequence[Summary], *, with_ratio: bool = False) -> str:
    """Markdown: a row for each figure that some run has, a column for each run; with the ratio of the first two."""
    rows = [row for row in ROWS if any(row.value(summary) is not None for summary in summaries)]
    cells = [["", *(f"{s.target}, {s.load}" for s in summaries), *(["ratio"] if with_ratio else [])],
             *([row.label, *map(row.cell, summaries), *([row.ratio(*summaries[:2])] if with_ratio else [])]
               for row in rows)]
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = [f"| {label:<{first}} | " + " | ".join(map(str.rjust, values, others)) + " |" for label, *values in cells]
    rule = f"|{'-' * (first + 2)}|" + "".join(f"{'-' * (width + 1)}:|" for width in others)
    return "\n".join([lines[0], rule, *lines[1:]])


def notes(summaries: Sequence[Summary], lacks: Sequence[str] = ()) -> Iterator[str]:
    """What stands below the table: what a target does not tell, and what went wrong."""
    if lacks:
        yield f"not told by {summaries[0].target}: {', '.join(lacks)}"
    for summary in summaries:
        for problem in summary.problems:
            yield f"{summary.target}, {summary.load}: {problem}"


def require_matplotlib() -> None:
    """Raises ConfigError if nothing can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: python -m pip install matplotlib")


def draw(summaries: Sequence[Summary], path: Path) -> None:
    """The latency over the throughput of every target: a curve through the rates of its sweep."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "ggpy", "font.size": 9}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        for axes, (name, label) in zip(figure.subplots(1, 2), (LATENCIES[0], LATENCIES[2]), strict=True):
            for target in dict.fromkeys(summary.target for summary in summaries):
                runs = sorted((s for s in summaries if s.target == target), key=lambda s: s.output_tokens_per_s)
                for quantile, style in (("p50", "o-"), ("p95", "o:")):
                    points = [(s.output_tokens_per_s, value) for s in runs
                              if (value := _latency(name, quantile)(s)) is not None]
                    axes.plot([x for x, _ in points], [y for _, y in points], style, label=f"{target} {quantile}")
            axes.set(xlabel="output tokens/s", ylabel=f"{label} [ms]", xlim=(0, None), yscale="log")
            axes.grid(alpha=0.3)
            axes.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
