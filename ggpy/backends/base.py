"""What the engine asks of a backend: run one step over sequences whose keys and values lie in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ggpy.formats.kv import PAGE_TOKENS, KVType, kv_bytes
from ggpy.graph.adapters import Adapter, Scales
from ggpy.graph.plan import KVGroup

if TYPE_CHECKING:
    from ggpy.kernels.cpu.team import Team

__all__ = [
    "PAGE_TOKENS", "Adapter", "Backend", "CacheTypes", "Compute", "KVGroup", "KVIdentity", "KVType", "Repack", "Scales",
    "StepSequence", "kv_bytes"]

Compute = Literal["int8", "f32"]            # arithmetic of the products
CacheTypes = tuple[KVType, KVType]          # of keys, of values
Repack = Literal["auto", "on", "off"]       # whether weights are copied into the order that kernels like best


@dataclass(slots=True)      # frozen ones take six times as long to make, and each step makes many
class StepSequence:
    """One sequence's part of a step: rows at consecutive positions, after those its pages already hold."""

    tokens: Sequence[int] | NDArray[np.int32]
    """The tokens to compute, at least one."""
    first_position: int
    """Position of tokens[0]; positions before it were computed in earlier steps."""
    page_table: NDArray[np.int32]
    """C-contiguous (n_groups, table_pages): column i of row g is the page of KV group g that holds the positions from
    PAGE_TOKENS * i on. Columns of positions that none of the rows sees are never read. The caller keeps it alive."""
    n_outputs: int
    """How many rows are output: 0 .. len(tokens)."""
    outputs_first: bool = False
    """Whether these are the first rows; else the last ones."""
    adapters: Scales = ()
    """How much of which adapters is added to the matrices, for these rows."""


@dataclass(frozen=True, slots=True)
class KVIdentity:
    """What the bits of keys and values follow from, beside their tokens: where all is the same, pages mean the same."""

    model: str
    """Fingerprint of the file."""
    numeric_path: str
    """Kind of processor, revision of the kernels and their arithmetic."""
    cache_types: CacheTypes


class Backend(Protocol):
    """Holds the weights and the pool of KV pages of one model, and computes steps. Not thread-safe."""

    n_vocab: int
    n_embd: int
    """Width of a hidden state."""
    n_classes: int
    """Scores of a classifier on top; 0: there is none."""
    is_encoder: bool
    """Tokens see those after them: a sequence is computed whole in one step, from position 0, its pages are of no use
    afterwards, and there are no logits."""
    kv_groups: tuple[KVGroup, ...]
    """Layers of full attention first, if there are any; then a group for each size of window."""
    n_pages: tuple[int, ...]
    """Pages in the pool of each group; their ids count from 0."""
    table_pages: int
    """Columns of a page table."""
    max_tokens: int
    """Rows a step may have, over all its sequences."""
    max_outputs: int
    """Output rows a step may have, over all its sequences."""

    @property
    def team(self) -> Team | None:
        """Threads that other compiled kernels may run on between steps; None: the caller's alone."""
        ...

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        """Compute one step, storing keys and values in the sequences' pages.

        Returns float32 logits (sum of n_outputs, n_vocab), rows in the order of the sequences: a view that is valid
        until the next call.
        """
        ...

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        """As `forward`, but the hidden states (sum of n_outputs, n_embd) that the logits would be made of."""
        ...

    def scores(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        """As `forward`, but the classifier's scores (sum of n_outputs, n_classes)."""
        ...

    def kv_identity(self) -> KVIdentity:
        """Whose pages these are; it takes some milliseconds."""
        ...

    def copy_page(self, group: int, source: int, target: int) -> None:
        """Makes page `target` of a group hold the keys and values that page `source` holds, of all its layers."""
        ...

    def page_bytes(self, group: int) -> int:
        """Bytes of a page of a group: keys and values of all its layers."""
        ...

    def read_page(self, group: int, page: int) -> bytes:
        """What a page holds, in this backend's own order: `page_bytes` bytes."""
        ...

    def write_page(self, group: int, page: int, data: bytes) -> None:
        """Fills a page with what `read_page` gave. Raises ValueError if that is not the size of a page."""
        ...

    def close(self) -> None:
        """Free threads and memory; the backend is of no use afterwards."""
        ...
