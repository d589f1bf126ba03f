"""A backend that computes in NumPy, for tests of what stands above backends."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, StepSequence
from ggpy.backends.reference import evaluate
from ggpy.graph.ops import OutputKind
from ggpy.models import Model


class ReferenceBackend:
    """Computes whole prefixes in NumPy; pages hold tokens instead of keys and values."""

    opened: ClassVar[list["ReferenceBackend"]] = []

    def __init__(self, gguf: Any, model: Model, *, n_pages: int, max_tokens: int, max_outputs: int, **_: Any) -> None:
        self.graph, self.n_vocab, self.n_embd = model.graph, model.hparams.n_vocab, model.hparams.n_embd
        self.n_pages, self.max_tokens, self.max_outputs = n_pages, max_tokens, max_outputs
        self.pages = np.zeros((n_pages, PAGE_TOKENS), np.int64)
        self.is_closed, self.team = False, None
        self.opened.append(self)

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "logits", self.n_vocab)

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "hidden", self.n_embd)

    def _outputs(self, sequences: Sequence[StepSequence], kind: OutputKind, width: int) -> NDArray[np.float32]:
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        rows = [np.empty((0, width), np.float32)]
        for s in sequences:
            end = s.first_position + len(s.tokens)
            positions = np.arange(s.first_position, end)
            self.pages[s.page_table[positions // PAGE_TOKENS], positions % PAGE_TOKENS] = s.tokens
            if s.n_outputs:
                tokens, outputs = self.pages[s.page_table].ravel()[:end], range(end - s.n_outputs, end)
                rows.append(evaluate(self.graph, tokens, outputs=outputs)[kind])
        return np.concatenate(rows)

    def close(self) -> None:
        self.is_closed = True
