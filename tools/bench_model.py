"""A model to be measured: sequences of random tokens, in steps of any shape, through the backend alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import Compute, KVType, Repack, StepSequence
from ggpy.backends.cpu import CpuBackend
from ggpy.engine.pages import pages_for
from ggpy.gguf import GGUFFile
from ggpy.loading import warn_beyond_training
from ggpy.models import build_model, hparams_of
from ggpy.tools.loading import KernelProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is loaded for measurements. Tests that agree in this share a loaded model."""

    path: Path
    n_threads: int
    step_tokens: int = 512
    cache_type_k: KVType = "f16"
    cache_type_v: KVType = "f16"
    repack: Repack = "auto"
    compute: Compute = "int8"


class MeasuredModel:
    """Holds `n_sequences` sequences of up to `n_ctx` random tokens each; use as a context manager.

    The token at a position is always the same one, so what a test computed up to some depth serves the next test.
    """

    def __init__(self, settings: ModelSettings, *, n_ctx: int, n_sequences: int = 1) -> None:
        gguf = GGUFFile(settings.path)
        warn_beyond_training(n_ctx, hparams_of(gguf))
        pages = pages_for(n_ctx)
        with KernelProgress(f"loading {settings.path.name}") as progress:
            self.backend = CpuBackend(
                gguf, build_model(gguf, n_ctx).graph, n_threads=settings.n_threads, n_pages=pages * n_sequences,
                table_pages=pages, max_tokens=max(settings.step_tokens, n_sequences), max_outputs=n_sequences,
                compute=settings.compute, cache_type_k=settings.cache_type_k, cache_type_v=settings.cache_type_v,
                repack=settings.repack, progress=progress.update)
        self.step_tokens = settings.step_tokens
        rng = np.random.default_rng(0)
        self._tokens: NDArray[np.int32] = rng.integers(
            self.backend.n_vocab, size=(n_sequences, n_ctx), dtype=np.int32)
        ids = np.arange(pages * n_sequences, dtype=np.int32).reshape(n_sequences, 1, pages)
        self._tables = np.repeat(ids, len(self.backend.kv_groups), axis=1)      # the same pages in every group
        self._computed = [0] * n_sequences      # positions whose keys and values are there

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.backend.close()

    def fill(self, depth: int, n_sequences: int = 1, progress: Callable[[int, int], None] | None = None) -> bool:
        """Computes the first `depth` tokens of each sequence where that was not done before; whether it was done.

        `progress` is told after each step how many tokens are computed, and of how many.
        """
        todo = [i for i in range(n_sequences) if self._computed[i] < depth]
        n_all = sum(depth - self._computed[i] for i in todo)
        n_done = 0
        for i in todo:
            for step in self.prompt_steps(self._computed[i], depth - self._computed[i], (i,)):
                self.backend.forward(step)
                n_done += len(step[0].tokens)
                if progress is not None:
                    progress(n_done, n_all)
            self._computed[i] = depth
        return not todo

    def read(self, depth: int, n_tokens: int, n_sequences: int = 1) -> None:
        """Computes the `n_tokens` tokens of each sequence that follow `depth` ones, as a prompt is read."""
        for step in self.prompt_steps(depth, n_tokens, range(n_sequences)):
            self.backend.forward(step)

    def generate(self, depth: int, n_tokens: int, n_sequences: int = 1) -> None:
        """Computes as many tokens, one of each sequence a step. None is chosen: the next one was known before."""
        for i in range(n_tokens):
            self.backend.forward(self.decode_step(depth + i, n_sequences))

    def prompt_steps(self, depth: int, n_tokens: int, sequences: Sequence[int]) -> Iterator[list[StepSequence]]:
        """The steps that read `n_tokens` tokens of each of `sequences`, logits for the last one of each."""
        step: list[StepSequence] = []
        room = self.step_tokens
        for i in sequences:
            first, end = depth, depth + n_tokens
            while first < end:
                stop = min(end, first + room)
                step.append(self._part(i, first, stop, n_outputs=int(stop == end)))
                room -= stop - first
                first = stop
                if room == 0:
                    yield step
                    step, room = [], self.step_tokens
        if step:
            yield step

    def decode_step(self, position: int, n_sequences: int = 1) -> list[StepSequence]:
        """One token of each sequence, at `position`."""
        return [self._part(i, position, position + 1, n_outputs=1) for i in range(n_sequences)]

    def bytes_per_step(self, position: int, n_sequences: int = 1) -> int:
        """What a step that generates reads: every weight once, and the keys and values before `position`."""
        work = self.backend.work(self.decode_step(position, n_sequences))
        return sum(entry.weight_bytes + entry.kv_bytes for entry in work)

    def _part(self, sequence: int, first: int, stop: int, *, n_outputs: int) -> StepSequence:
        return StepSequence(tokens=self._tokens[sequence, first:stop], first_position=first,
                            page_table=self._tables[sequence], n_outputs=n_outputs)
