"""Runs a process for a benchmark: when its first line came, and how much memory it and its children took."""

import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended well."""

    lines: list[str]            # of stdout
    first_line_s: float         # from its start
    peak_bytes: int | None      # resident at most, children added; None where the system does not tell


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Finished:
    """Runs `command` to its end. Raises SystemExit with its last words if it fails or prints nothing."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process:
            assert process.stdout is not None
            with MemoryWatch(process.pid) as memory:
                first = process.stdout.readline()
                first_line_s = time.perf_counter() - start
                lines = [first, *process.stdout]
        if process.returncode != 0 or not first:
            errors.seek(0)
            raise SystemExit(f"{command[0]} ended with code {process.returncode}: {errors.read()[-2000:]}")
    return Finished(lines, first_line_s, memory.peak_bytes)


class MemoryWatch:
    """Looks at the resident memory of a process and its descendants again and again; they keep their own peaks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def peak_bytes(self) -> int | None:
        """The peaks of all of them, added; None if nothing could be read."""
        return sum(self._peaks.values()) or None

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            for pid in descendants(self._pid):
                peak = peak_resident_bytes(pid)
                if peak is not None:        # the last value counts: before exec a child has its parent's
                    self._peaks[pid] = peak
            if self._ended.wait(POLL_S):
                return


def descendants(pid: int) -> list[int]:
    """`pid` and the processes below it; no others where there is no /proc."""
    found = [pid]
    for parent in found:        # grows meanwhile
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, (_read(file) or "").split())
    return found


def peak_resident_bytes(pid: int) -> int | None:
    """The most memory that the process has had resident so far; None if it has ended or the system does not tell."""
    for line in (_read(Path(f"/proc/{pid}/status")) or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:         # the process has ended
        return None
