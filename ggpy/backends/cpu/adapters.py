"""The memory of low-rank adapters: their factors as kernels read them, and what each row of a step asks for."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggpy.backends.base import StepSequence
from ggpy.graph.adapters import Adapter, embedding_term
from ggpy.kernels.cpu.arguments import LOW_RANK_TERM


class AdapterMemory:
    """The factors of `adapters`, and room for the scales of `max_tokens` rows."""

    def __init__(self, adapters: Sequence[Adapter], max_tokens: int) -> None:
        self.n_adapters = len(adapters)
        self.scales = np.zeros((max_tokens, len(adapters)), np.float32)
        self._embeddings = [adapter.embedding for adapter in adapters]
        self.has_embeddings = any(term is not None for term in self._embeddings)
        self._factors: list[npt.NDArray[np.float32]] = []       # what the tables have addresses of
        self._terms = {name: self._table(name, adapters) for adapter in adapters for name in adapter.linear}
        self.max_rank = max((len(term.a) for adapter in adapters for term in adapter.linear.values()), default=0)

    def terms(self, weight: str) -> int:
        """Address of the adapters' terms of a matrix, int64 (n_adapters, 3); 0: no adapter has any."""
        return int(self._terms[weight].ctypes.data) if weight in self._terms else 0

    def fill(self, sequences: Sequence[StepSequence]) -> bool:
        """Note what the rows of a step ask for; returns whether any asks for something."""
        if not any(sequence.adapters for sequence in sequences):
            return False
        start = 0
        self.scales[: sum(len(sequence.tokens) for sequence in sequences)] = 0
        for sequence in sequences:
            for i, scale in sequence.adapters:
                self.scales[start : start + len(sequence.tokens), i] = scale
            start += len(sequence.tokens)
        return True

    def add_to_embeddings(self, sequences: Sequence[StepSequence], rows: npt.NDArray[np.float32]) -> None:
        """Add the adapters' part to the token embeddings `rows` (n_tokens, n_embd) of a step."""
        start = 0
        for sequence in sequences:
            mine = rows[start : start + len(sequence.tokens)]
            for i, scale in sequence.adapters:
                term = self._embeddings[i]
                if term is not None:
                    mine += embedding_term(term, np.asarray(sequence.tokens), scale)
            start += len(sequence.tokens)

    def _table(self, name: str, adapters: Sequence[Adapter]) -> npt.NDArray[np.int64]:
        table = np.zeros((len(adapters), len(LOW_RANK_TERM._fields)), np.int64)
        for row, adapter in zip(table, adapters, strict=True):
            term = adapter.linear.get(name)
            if term is not None:
                a, b = np.ascontiguousarray(term.a), np.ascontiguousarray(term.b.T)
                self._factors += [a, b]
                row[:] = a.ctypes.data, b.ctypes.data, len(a)
        return table
