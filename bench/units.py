"""What a comparison has measured: units, kept in a file so that a later run goes on where an earlier one stopped."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.groups import GROUPS, Group


class Key(NamedTuple):
    """What a unit measures. `level` is a value of GGPY_CPU, "" is the machine's own."""

    group: str
    model: str
    threads: int
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """All rounds of one group and model. Round i of every engine happened before round i + 1 of any."""

    group: str
    model: str
    threads: int
    level: str
    is_requantised: bool
    machine: str
    load: float | None              # when it began; what else runs slows both, not equally
    commit: str
    builds: dict[str, str]          # label of a llama.cpp build -> its version
    ours: list[float]
    theirs: dict[str, list[float]]  # label -> values

    @property
    def key(self) -> Key:
        return Key(self.group, self.model, self.threads, self.level)

    @property
    def kind(self) -> Group:
        return GROUPS[self.group]

    @property
    def best(self) -> str | None:
        """The label of the llama.cpp build whose median is best; None if there is none."""
        choose = min if self.kind.lower_is_better else max
        return choose(self.theirs, key=lambda label: statistics.median(self.theirs[label])) if self.theirs else None

    @property
    def best_values(self) -> list[float]:
        return self.theirs[self.best] if self.best is not None else []

    @property
    def ratios(self) -> list[float]:
        """How many times better ours is than the best build, round by round."""
        pairs = zip(self.ours, self.best_values, strict=False)
        return [theirs / ours if self.kind.lower_is_better else ours / theirs for ours, theirs in pairs]


def load_units(file: Path | None) -> dict[Key, Unit]:
    """The last unit of each key in `file`."""
    if file is None or not file.exists():
        return {}
    units = (Unit(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines() if line)
    return {unit.key: unit for unit in units}


def append_unit(file: Path | None, unit: Unit) -> None:
    """Keep `unit`, if there is a file to keep it in."""
    if file is not None:
        with file.open("a", encoding="utf-8") as stream:
            print(json.dumps(as_json(unit)), file=stream)


def as_json(unit: Unit) -> Any:
    """The unit's fields, with four digits of every float."""
    return json.loads(json.dumps(asdict(unit)), parse_float=lambda text: float(f"{float(text):.4g}"))


def spread(values: Sequence[float], digits: int) -> str:
    """Median and range."""
    if not values:
        return "-"
    median = f"{statistics.median(values):.{digits}f}"
    return median if len(values) == 1 else f"{median} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """By group, the machine's own level first, files that were quantised again last; models as they came."""
    groups = list(GROUPS)
    return sorted(units, key=lambda unit: (groups.index(unit.group), unit.is_requantised, unit.level != "", unit.level,
                                           -unit.threads))
