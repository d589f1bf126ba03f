"""The two sides of a comparison: each measures a group in a fresh process."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.groups import Group
from bench.process import Finished, run


@dataclass(frozen=True, slots=True)
class Ours:
    """This engine, in processes of the Python that runs the benchmark; `level` is a value of GGPY_CPU."""

    n_threads: int
    level: str = ""

    def measure(self, group: Group, model: Path) -> float:
        """The group's value in one round."""
        if not group.is_cold:
            return self._value(group, model, {})
        with tempfile.TemporaryDirectory() as home:
            return self._value(group, model, {"GGPY_HOME": home})

    def warm_up(self, model: Path) -> None:
        """Compiles what is missing and reads the file once."""
        self._process(("first",), model, {})

    def _value(self, group: Group, model: Path, environment: dict[str, str]) -> float:
        finished = self._process(group.measures, model, environment)
        if group.lower_is_better:
            return resources(group, finished)
        return float(json.loads(finished.lines[-1])[group.measures[0]])

    def _process(self, measures: tuple[str, ...], model: Path, environment: dict[str, str]) -> Finished:
        script = Path(__file__).with_name("engine_process.py")
        level = {"GGPY_CPU": self.level} if self.level else {}
        return run([sys.executable, str(script), str(model), str(self.n_threads), *measures],
                   os.environ | level | environment)


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A build of llama.cpp: the folder of llama-bench and llama-batched-bench."""

    folder: Path
    n_threads: int

    def measure(self, group: Group, model: Path) -> float:
        """The group's value in one round."""
        output = ("--output-format", "jsonl") if group.batched else ("-r", "1", "-o", "jsonl")
        finished = run([str(self._program(group)), "-m", str(model), *group.llama_bench, "-t", str(self.n_threads),
                        *output])
        if group.lower_is_better:
            return resources(group, finished)
        result = next(json.loads(line) for line in finished.lines if line.startswith("{"))
        return float(result["speed_tg" if group.batched else "avg_ts"])

    def can(self, group: Group) -> bool:
        """Whether this build has the program for it."""
        return not group.is_cold and self._program(group).is_file()

    def build(self) -> str:
        """Which llama.cpp it is, such as "0.5.0-dev (build 1, commit 0c1e570)"."""
        command = [str(self.folder / "llama-bench"), "--version"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except OSError as error:
            raise SystemExit(f"{command[0]} does not start: {error.strerror}") from error
        lines = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("version: ")]
        return lines[0].removeprefix("version: ") if lines else "unknown"

    def _program(self, group: Group) -> Path:
        return self.folder / ("llama-batched-bench" if group.batched else "llama-bench")


def resources(group: Group, process: Finished) -> float:
    """Milliseconds until it printed, or the MB that it took; nan where the system does not tell."""
    if group.is_time:
        return 1000 * process.first_line_s
    return float("nan") if process.peak_bytes is None else process.peak_bytes / 1e6
