"""Running the tests of `ggpy bench`: records for its outputs, one after the other."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import Any

from ggpy.gguf import GGUFFile
from ggpy.kernels.cpu.level import current_level
from ggpy.tools import checks
from ggpy.tools.bench_model import MeasuredModel, ModelSettings
from ggpy.tools.bench_tests import BatchedTest, ModelFacts, Test, model_facts
from ggpy.tools.memory_speed import MemoryReader

LOOK_S = 0.25           # at how fast memory is read, before and after each run

Record = dict[str, Any]         # field -> value, in the order of llama-bench's
Progress = Callable[[str], None]


def measure(tests: Sequence[Test | BatchedTest], *, repetitions: int, warm_up: bool, bandwidth: float | None,
            progress: Progress) -> Iterator[tuple[Record, str]]:
    """The record of each test in turn, and the line that goes below all of them.

    `bandwidth` is how fast memory is read, in GB/s; None: it is measured beside each run, with as many threads.
    """
    bandwidths: dict[int, list[float]] = {}
    for settings, group in itertools.groupby(enumerate(tests, start=1), key=lambda numbered: numbered[1].settings):
        named = [(f"{number}/{len(tests)}, {test.name}", test) for number, test in group]
        for record in _records(settings, named, repetitions, warm_up, bandwidth, progress):
            bandwidths.setdefault(settings.n_threads, []).append(record["bandwidth"])
            yield record, _footer(bandwidths)


def _records(settings: ModelSettings, tests: Sequence[tuple[str, Test | BatchedTest]], repetitions: int, warm_up: bool,
             bandwidth: float | None, progress: Progress) -> Iterator[Record]:
    """The record of each of `tests`, which stand behind their names and have `settings` in common.

    A model is loaded by what memory is free, so that which is read to measure the bandwidth comes after it, and goes
    with it.
    """
    facts = model_facts(GGUFFile(settings.path))
    with MeasuredModel(settings, n_ctx=max(test.n_ctx for _, test in tests),
                       n_sequences=max(test.n_sequences for _, test in tests)) as model:
        begin: Callable[[], _Bandwidth] = (
            partial(_GivenBandwidth, bandwidth) if bandwidth is not None
            else partial(_MeasuredBandwidth, MemoryReader(settings.n_threads)))
        for name, test in tests:
            runner = _Runner(model, repetitions, warm_up, begin(), progress, name)
            yield _common(test, facts) | runner.run(test)


class _GivenBandwidth:
    """How fast memory is read, as the user says."""

    def __init__(self, gb_per_s: float) -> None:
        self.gb_per_s = gb_per_s

    def look(self) -> None:
        """Nothing to look at."""


class _MeasuredBandwidth:
    """How fast memory is read while a test runs. What else uses it changes by the second, so it is measured between
    the runs."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader
        self._rounds: list[float] = []

    def look(self) -> None:
        self._rounds += self._reader.read(LOOK_S)

    @property
    def gb_per_s(self) -> float:
        """The mean by time of all looks."""
        return statistics.harmonic_mean(self._rounds) / 1e9


_Bandwidth = _GivenBandwidth | _MeasuredBandwidth


class _Runner:
    """Runs a test on a model."""

    def __init__(self, model: MeasuredModel, repetitions: int, warm_up: bool, bandwidth: _Bandwidth,
                 progress: Progress, name: str) -> None:
        self._model, self._repetitions, self._warm_up, self._bandwidth = model, repetitions, warm_up, bandwidth
        self._say, self._name = progress, name

    def _progress(self, text: str) -> None:
        self._say(f"{self._name}: {text}")

    def run(self, test: Test | BatchedTest) -> Record:
        """The fields that only a test of this kind has."""
        return self._single(test) if isinstance(test, Test) else self._batched(test)

    def _single(self, test: Test) -> Record:
        model = self._model
        if self._warm_up:
            self._progress("warm-up")
            model.read(0, test.n_prompt)
            model.generate(0, min(1, test.n_gen))
        self._progress("depth")
        model.fill(test.n_depth)
        samples_ns = []
        self._bandwidth.look()
        for i in range(self._repetitions):
            self._progress(f"run {i + 1}/{self._repetitions}")
            start = time.perf_counter_ns()
            model.read(test.n_depth, test.n_prompt)
            model.generate(test.n_depth + test.n_prompt, test.n_gen)
            samples_ns.append(time.perf_counter_ns() - start)
            self._bandwidth.look()
        samples_ts = [1e9 * (test.n_prompt + test.n_gen) / ns for ns in samples_ns]
        roofline = None
        if test.n_prompt == 0:
            middle = test.n_depth + (test.n_gen - 1) // 2
            roofline = self._roofline(middle, 1, statistics.mean(samples_ts))
        return {"n_prompt": test.n_prompt, "n_gen": test.n_gen, "n_depth": test.n_depth,
                "test_time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "avg_ns": round(statistics.mean(samples_ns)), "stddev_ns": round(_deviation(samples_ns)),
                "avg_ts": statistics.mean(samples_ts), "stddev_ts": _deviation(samples_ts),
                "bandwidth": self._bandwidth.gb_per_s, "roofline": roofline,
                "samples_ns": samples_ns, "samples_ts": samples_ts}

    def _batched(self, test: BatchedTest) -> Record:
        model, n = self._model, test.n_parallel
        if self._warm_up:
            self._progress("warm-up")
            model.read(0, min(16, test.n_prompt), n)
            model.generate(0, 1, n)
        read_s, generate_s = [], []
        self._bandwidth.look()
        for i in range(self._repetitions):
            self._progress(f"run {i + 1}/{self._repetitions}")
            start = time.perf_counter()
            model.read(0, test.n_prompt, n)
            middle = time.perf_counter()
            model.generate(test.n_prompt, test.n_gen, n)
            read_s.append(middle - start)
            generate_s.append(time.perf_counter() - middle)
            self._bandwidth.look()
        t_pp, t_tg = statistics.mean(read_s), statistics.mean(generate_s)
        roofline = self._roofline(test.n_prompt + (test.n_gen - 1) // 2, n, test.n_gen / t_tg)
        n_kv = n * (test.n_prompt + test.n_gen)
        return {"pp": test.n_prompt, "tg": test.n_gen, "pl": n, "n_kv": n_kv, "t_pp": t_pp,
                "speed_pp": n * test.n_prompt / t_pp, "t_tg": t_tg, "speed_tg": n * test.n_gen / t_tg,
                "t": t_pp + t_tg, "speed": n_kv / (t_pp + t_tg), "bandwidth": self._bandwidth.gb_per_s,
                "roofline": roofline}

    def _roofline(self, position: int, n_sequences: int, steps_per_s: float) -> float:
        """Percent of the bandwidth at which steps that generate at `position` read memory."""
        return 100 * self._model.bytes_per_step(position, n_sequences) * steps_per_s / (self._bandwidth.gb_per_s * 1e9)


def _footer(bandwidths: Mapping[int, Sequence[float]]) -> str:
    speeds = ", ".join(f"{statistics.mean(seen):.1f} GB/s by {n} threads" for n, seen in bandwidths.items())
    return f"build: ggpy {metadata.version('ggpy')}, {current_level().name}; memory is read at {speeds}"


def _common(test: Test | BatchedTest, facts: ModelFacts) -> Record:
    """The fields that every record begins with."""
    settings = test.settings
    return {"build_version": metadata.version("ggpy"), "cpu_info": checks.processor_name() or "",
            "cpu_level": current_level().name, "backends": "CPU", "model_filename": str(settings.path),
            "model_type": facts.type, "model_size": facts.size_bytes, "model_n_params": facts.n_params,
            "n_batch": test.n_batch, "n_ubatch": test.n_ubatch, "n_threads": settings.n_threads,
            "type_k": settings.cache_type_k, "type_v": settings.cache_type_v, "repack": settings.repack,
            "compute": settings.compute}


def _deviation(samples: Sequence[float]) -> float:
    return statistics.stdev(samples) if len(samples) > 1 else 0.0
