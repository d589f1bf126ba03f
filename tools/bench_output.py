"""The outputs of `ggpy bench`: llama-bench's tables and records, with columns of ggpy's own at the end."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from ggpy.tools.bench_tests import BatchedTest, Test

Record = dict[str, Any]
Cell = Callable[[Record], str]

# optional columns of the table: shown if some test has another value
DEFAULTS = {"n_batch": 2048, "n_ubatch": 512, "type_k": "f16", "type_v": "f16", "repack": "auto", "compute": "int8"}
WIDTHS = {"model": -30, "size": 10, "params": 10, "backend": -10, "threads": 7, "test": 15, "t/s": 20, "roofline": 8,
          **{name: len(name) for name in DEFAULTS}}     # negative: aligned to the left
LISTS = ("samples_ns", "samples_ts")        # only JSON has them
TABLES = {False: "llama_bench", True: "llama_batched_bench"}


class Printer(Protocol):
    """Writes records as they come."""

    def begin(self) -> None: ...

    def add(self, record: Record) -> None: ...

    def end(self, footer: str) -> None: ...


class Markdown:
    """llama-bench's table."""

    def __init__(self, stream: TextIO, tests: Sequence[Test | BatchedTest]) -> None:
        self._stream = stream
        shown = [name for name, default in DEFAULTS.items() if any(_value(test, name) != default for test in tests)]
        self._columns = ["model", "size", "params", "backend", "threads", *shown, "test", "t/s", "roofline"]

    def begin(self) -> None:
        self._line([name if WIDTHS[name] < 0 else name.rjust(WIDTHS[name]) for name in self._columns])
        self._line(["-" * -WIDTHS[name] if WIDTHS[name] < 0 else "-" * (WIDTHS[name] - 1) + ":"
                    for name in self._columns])

    def add(self, record: Record) -> None:
        self._line([cell(record, name) for name in self._columns])

    def end(self, footer: str) -> None:
        print(f"\n{footer}", file=self._stream, flush=True)

    def _line(self, cells: Sequence[str]) -> None:
        padded = (cell.ljust(-WIDTHS[name]) if WIDTHS[name] < 0 else cell.rjust(WIDTHS[name])
                  for cell, name in zip(cells, self._columns, strict=True))
        print(f"| {' | '.join(padded)} |", file=self._stream, flush=True)


class BatchedMarkdown:
    """llama-batched-bench's table, with a heading for each model and its settings."""

    COLUMNS = (("PP", 6, "pp", "d"), ("TG", 6, "tg", "d"), ("B", 4, "pl", "d"), ("N_KV", 6, "n_kv", "d"),
               ("T_PP s", 8, "t_pp", ".3f"), ("S_PP t/s", 8, "speed_pp", ".2f"), ("T_TG s", 8, "t_tg", ".3f"),
               ("S_TG t/s", 8, "speed_tg", ".2f"), ("T s", 8, "t", ".3f"), ("S t/s", 8, "speed", ".2f"),
               ("roofline", 8, "roofline", ".1f"))

    def __init__(self, stream: TextIO, tests: Sequence[Test | BatchedTest]) -> None:
        self._stream = stream
        self._heading = ""

    def begin(self) -> None:
        """Nothing yet: headings come with the records."""

    def add(self, record: Record) -> None:
        heading = ", ".join([record["model_type"], *(f"{name} {record[name]}" for name in ("n_threads", *DEFAULTS))])
        if heading != self._heading:
            print(f"{heading}\n" if not self._heading else f"\n{heading}\n", file=self._stream)
            self._heading = heading
            print(f"| {' | '.join(title.rjust(width) for title, width, *_ in self.COLUMNS)} |", file=self._stream)
            print(f"| {' | '.join('-' * (width - 1) + ':' for _, width, *_ in self.COLUMNS)} |", file=self._stream)
        cells = (format(record[name], spec).rjust(width - (name == "roofline")) + "%" * (name == "roofline")
                 for _, width, name, spec in self.COLUMNS)
        print(f"| {' | '.join(cells)} |", file=self._stream, flush=True)

    def end(self, footer: str) -> None:
        print(f"\n{footer}", file=self._stream, flush=True)


class _Unframed:
    """What writes records alone: names come with the first one, and the footer is for people."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = False

    def begin(self) -> None: ...

    def end(self, footer: str) -> None: ...


class Csv(_Unframed):
    """A line of names, then a line of values for each record."""

    def add(self, record: Record) -> None:
        values = _flat(record)
        if not self._begun:
            print(",".join(values), file=self._stream)
            self._begun = True
        csv.writer(self._stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(
            ["" if value is None else value for value in values.values()])
        self._stream.flush()


class JsonLines(_Unframed):
    """An object in a line for each record."""

    def add(self, record: Record) -> None:
        print(json.dumps(rounded(record)), file=self._stream, flush=True)


class Json:
    """One array of objects."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._separator = "["

    def begin(self) -> None:
        """Nothing yet."""

    def add(self, record: Record) -> None:
        text = json.dumps(rounded(record), indent=2).replace("\n", "\n  ")
        print(f"{self._separator}\n  {text}", end="", file=self._stream, flush=True)
        self._separator = ","

    def end(self, footer: str) -> None:
        print("\n]", file=self._stream, flush=True)


class Sql(_Unframed):
    """Statements that create a table where there is none and insert each record."""

    def add(self, record: Record) -> None:
        values = _flat(record)
        name = TABLES["pl" in record]
        if not self._begun:
            columns = ",\n".join(f"  {key} {_sql_type(value)}" for key, value in values.items())
            print(f"CREATE TABLE IF NOT EXISTS {name} (\n{columns}\n);\n", file=self._stream)
            self._begun = True
        literals = ", ".join(_sql_literal(value) for value in values.values())
        print(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({literals});", file=self._stream, flush=True)


FORMATS: dict[str, Callable[..., Printer]] = {"csv": Csv, "json": Json, "jsonl": JsonLines, "md": Markdown, "sql": Sql}


def cell(record: Record, column: str) -> str:
    """What a column of llama-bench's table says of a test."""
    special: dict[str, Cell] = {
        "model": lambda r: r["model_type"], "size": lambda r: size(r["model_size"]),
        "params": lambda r: parameters(r["model_n_params"]), "backend": lambda r: r["backends"],
        "threads": lambda r: str(r["n_threads"]),
        "test": lambda r: test_name(r["n_prompt"], r["n_gen"], r["n_depth"]),
        "t/s": lambda r: f"{r['avg_ts']:.2f} ± {r['stddev_ts']:.2f}",
        "roofline": lambda r: "" if r["roofline"] is None else f"{r['roofline']:.1f}%"}
    return special[column](record) if column in special else str(record[column])


def test_name(n_prompt: int, n_gen: int, n_depth: int) -> str:
    """pp512, tg128 or pp512+tg128, and how deep: pp512 @ d4096."""
    parts = [f"{kind}{n}" for kind, n in (("pp", n_prompt), ("tg", n_gen)) if n]
    return "+".join(parts) + (f" @ d{n_depth}" if n_depth else "")


def size(size_bytes: int) -> str:
    """92.10 MiB or 1.04 GiB."""
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.2f} MiB"


def parameters(n: int) -> str:
    """134.52 M or 1.54 B."""
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def rounded(record: Record) -> Record:
    """The record with six digits of what was measured."""
    def short(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) else value

    return {key: [short(item) for item in value] if isinstance(value, list) else short(value)
            for key, value in record.items()}


def _flat(record: Record) -> Record:
    return {key: value for key, value in rounded(record).items() if key not in LISTS}


def _value(test: Test | BatchedTest, name: str) -> Any:
    name = {"type_k": "cache_type_k", "type_v": "cache_type_v"}.get(name, name)
    return getattr(test if hasattr(test, name) else test.settings, name)


def _sql_type(value: Any) -> str:
    return "INTEGER" if isinstance(value, int) else "TEXT" if isinstance(value, str) else "REAL"


def _sql_literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
