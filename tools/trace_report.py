"""A profile as a table, as JSON, and as a Chrome trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ggpy.backends.cpu.encode import Entry
from ggpy.backends.cpu.trace import StepTrace
from ggpy.tools.terminal import print_tables, table
from ggpy.tools.trace_rows import Profile, Row, tensor_of

HEADINGS = ("KERNEL", "TENSOR", "CALLS", "MS", "WAIT MS", "SHARE", "GB/S", "GOP/S", "IMBALANCE")


def print_profile(title: str, profile: Profile, *, in_order: bool) -> None:
    """Milliseconds and calls are those of a mean step; the longest first unless `in_order` of the tape.

    MS is the threads' mean time at work, GB/S and GOP/S are rates by the busiest one's; SHARE includes the wait.
    """
    n, total_s = profile.n_steps, profile.total_s
    weights, kv = (sum(getattr(row, name) for row in profile.rows) for name in ("weight_bytes", "kv_bytes"))
    print(title)
    steps = "a step" if n == 1 else f"{n:,} steps"
    each = "" if n == 1 else " each"
    print(f"{steps}, {total_s / n * 1e3:,.3f} ms{each}, {profile.n_tokens / total_s:,.1f} tokens/s")
    print(f"a step reads {weights / n / 1e6:,.1f} MB of weights and {kv / n / 1e6:,.1f} MB of keys and values: "
          f"{(weights + kv) / total_s / 1e9:.1f} GB/s")
    print(f"threads wait {sum(row.wait_s for row in profile.rows) / total_s:.1%} of the time\n")
    result = table(*HEADINGS)
    for column in result.columns[2:]:
        column.justify = "right"
    rows = profile.rows if in_order else sorted(profile.rows, key=lambda row: -row.time_s)
    for row in rows:
        result.add_row(*cells(row, profile))
    for name, seconds in (("Python before the tape", profile.prepare_s), ("call and return", profile.call_s)):
        result.add_row(name, "", "", f"{seconds / n * 1e3:.3f}", "", f"{seconds / total_s:.1%}", "", "", "")
    print_tables(result)


def cells(row: Row, profile: Profile) -> tuple[str, ...]:
    """A row of the table."""
    n = profile.n_steps
    return (row.kernel, row.tensor, f"{row.calls / n:g}", f"{row.busy_s / n * 1e3:.3f}", f"{row.wait_s / n * 1e3:.3f}",
            f"{row.time_s / profile.total_s:.1%}", f"{row.gb_per_s:.1f}" if row.gb_per_s else "",
            f"{row.gop_per_s:.1f}" if row.gop_per_s else "", f"{row.imbalance:.2f}")


def as_json(profile: Profile) -> dict[str, Any]:
    """The profile with the figures of the table added to its rows; times are sums over the steps."""
    values = asdict(profile)
    for values_of_row, row in zip(values["rows"], profile.rows, strict=True):
        values_of_row |= {"time_s": row.time_s, "gb_per_s": row.gb_per_s, "gop_per_s": row.gop_per_s,
                          "imbalance": row.imbalance}
    return {**rounded(values), "rows": [rounded(row) for row in values["rows"]]}


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with times to the nanosecond and other numbers to 4 digits behind the point."""
    return {name: round(value, 9 if name.endswith("_s") and "per" not in name else 4) if isinstance(value, float)
            else value for name, value in values.items()}


def write_chrome_trace(path: Path, entries: Sequence[Entry], steps: Sequence[StepTrace], cycle_s: float) -> None:
    """Every thread's part in every entry, as the Trace Event Format that Perfetto and chrome://tracing read."""
    n_threads = steps[0].cycles.shape[1]
    events: list[dict[str, Any]] = [_thread_name(0, "python")]
    events += [_thread_name(i + 1, f"thread {i}") for i in range(n_threads)]
    zero_s = steps[0].begin_s
    for number, step in enumerate(steps):
        events.append(_event("prepare", 0, step.begin_s - zero_s, step.tape_s - step.begin_s, {"step": number}))
        events.append(_event("run", 0, step.tape_s - zero_s, step.end_s - step.tape_s, {"step": number}))
        zero = step.first_cycle
        for entry, work, cycles in zip(entries, step.work, step.cycles, strict=True):
            args = {"kernel": entry.kernel, "weight_bytes": work.weight_bytes, "kv_bytes": work.kv_bytes,
                    "operations": work.operations, "barrier": entry.barrier}
            for thread, (begin, end) in enumerate(cycles.tolist()):
                if end:
                    start_s = step.tape_s - zero_s + (begin - zero) * cycle_s
                    name = tensor_of(entry.op) or entry.kernel
                    events.append(_event(name, thread + 1, start_s, (end - begin) * cycle_s, args))
    with path.open("w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


def _thread_name(thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": name}}


def _event(name: str, thread: int, start_s: float, duration_s: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": str(args.get("kernel", "python")), "pid": 0, "tid": thread,
            "ts": round(start_s * 1e6, 3), "dur": round(duration_s * 1e6, 3), "args": args}
