"""Tiny models on the CPU backend, and steps of sequences whose pages have given ids."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import StepSequence
from ggpy.backends.cpu import CpuBackend
from ggpy.gguf import GGUFFile
from ggpy.models import build_model
from tests.models.arch_data import ArchModel
from tests.models.encoder_data import EncoderModel

Float32 = NDArray[np.float32]
N_PAGES = 24
NO_PAGE = -(1 << 30)        # reading such a page is a crash


@contextmanager
def cpu(model: ArchModel | EncoderModel, **options: Any) -> Iterator[CpuBackend]:
    """A backend of a tiny model; by default two threads and int8 activations."""
    gguf = GGUFFile(model.path)
    settings = {"n_threads": 2, "n_pages": N_PAGES, "max_tokens": 128, **options}
    backend = CpuBackend(gguf, build_model(gguf, model.n_ctx).graph, **settings)
    try:
        yield backend
    finally:
        backend.close()


def pages(*ids: int) -> NDArray[np.int32]:
    return np.array(ids, np.int32)


def sequence(backend: CpuBackend, tokens: Sequence[int] | NDArray[np.int32], first_position: int,
             ids: NDArray[np.int32], n_outputs: int) -> StepSequence:
    """`ids` (n,) are the sequence's first pages in every group, or those of each group in rows (n_groups, n)."""
    table = np.full((len(backend.kv_groups), backend.table_pages), NO_PAGE, np.int32)
    table[:, : ids.shape[-1]] = ids
    return StepSequence(tokens, first_position, table, n_outputs)


def in_chunks(backend: CpuBackend, tokens: NDArray[np.int32], sizes: list[int], ids: NDArray[np.int32]) -> Float32:
    """Logits of every token, computed in steps of the given sizes, the last size repeated."""
    logits: list[Float32] = []
    start = 0
    while start < len(tokens):
        size = sizes[min(len(logits), len(sizes) - 1)]
        part = tokens[start: start + size]
        logits.append(backend.forward([sequence(backend, part, start, ids, len(part))]).copy())
        start += len(part)
    return np.concatenate(logits)
