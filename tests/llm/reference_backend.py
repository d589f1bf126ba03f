"""A backend that computes in NumPy, for tests of what stands above backends."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, Adapter, KVIdentity, StepSequence
from ggpy.backends.reference import evaluate
from ggpy.graph.ops import OutputKind
from ggpy.models import Model


class ReferenceBackend:
    """Computes whole prefixes in NumPy; pages hold tokens instead of keys and values.

    Prefixes are read through group 0; what a group with a window would see must be the same there.
    """

    opened: ClassVar[list["ReferenceBackend"]] = []

    def __init__(self, gguf: Any, model: Model, *, n_pages: int | Sequence[int], table_pages: int, max_tokens: int,
                 max_outputs: int, adapters: Sequence[Adapter] = (), **_: Any) -> None:
        self.graph, self.n_vocab, self.n_embd = model.graph, model.hparams.n_vocab, model.hparams.n_embd
        self.kv_groups, self.is_encoder = model.kv_groups, not model.hparams.causal
        self.n_classes = model.graph.outputs["scores"].width if "scores" in model.graph.outputs else 0
        self.n_pages = (n_pages,) * len(self.kv_groups) if isinstance(n_pages, int) else tuple(n_pages)
        self.table_pages, self.max_tokens, self.max_outputs = table_pages, max_tokens, max_outputs
        self.pools = [np.zeros((n, PAGE_TOKENS), np.int64) for n in self.n_pages]
        self.adapters = adapters
        self.is_closed, self.team = False, None
        self.opened.append(self)

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "logits", self.n_vocab)

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "hidden", self.n_embd)

    def scores(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "scores", self.n_classes)

    def _outputs(self, sequences: Sequence[StepSequence], kind: OutputKind, width: int) -> NDArray[np.float32]:
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        rows = [np.empty((0, width), np.float32)]
        for s in sequences:
            end = s.first_position + len(s.tokens)
            positions = np.arange(s.first_position, end)
            for pool, table in zip(self.pools, s.page_table, strict=True):
                pool[table[positions // PAGE_TOKENS], positions % PAGE_TOKENS] = s.tokens
            tokens = self._tokens(s, 0, end)
            for group, members in enumerate(self.kv_groups):
                first = 0 if members.window is None else max(0, s.first_position - members.window + 1)
                assert np.array_equal(self._tokens(s, group, end)[first:], tokens[first:])
            if s.n_outputs:
                outputs = range(s.n_outputs) if s.outputs_first else range(end - s.n_outputs, end)
                adapters = [(self.adapters[i], scale) for i, scale in s.adapters]
                rows.append(evaluate(self.graph, tokens, outputs=outputs, adapters=adapters)[kind])
        return np.concatenate(rows)

    def _tokens(self, sequence: StepSequence, group: int, end: int) -> NDArray[np.int64]:
        """The tokens at positions 0 .. end - 1, as the pages of a group have them."""
        n = -(-end // PAGE_TOKENS)
        tokens: NDArray[np.int64] = self.pools[group][sequence.page_table[group, :n]].ravel()[:end]
        return tokens

    def kv_identity(self) -> KVIdentity:
        return KVIdentity("reference", "reference", ("f32", "f32"))

    def copy_page(self, group: int, source: int, target: int) -> None:
        self.pools[group][target] = self.pools[group][source]

    def page_bytes(self, group: int) -> int:
        return int(self.pools[group][0].nbytes)

    def read_page(self, group: int, page: int) -> bytes:
        return bytes(self.pools[group][page].tobytes())

    def write_page(self, group: int, page: int, data: bytes) -> None:
        self.pools[group][page] = np.frombuffer(data, np.int64)

    def close(self) -> None:
        self.is_closed = True
