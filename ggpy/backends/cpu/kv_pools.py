"""The memory of keys and values: each group of layers has a pool of pages, and an id means one page of each layer."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggpy.backends.base import PAGE_TOKENS, CacheTypes, kv_bytes
from ggpy.backends.cpu.memory import Arena, aligned
from ggpy.errors import ConfigError
from ggpy.formats.kv import QUANT_BLOCK
from ggpy.graph.ops import Attention
from ggpy.graph.plan import kv_groups

Pages = npt.NDArray[np.uint8]           # (n_pages, page_bytes)


class KVPools:
    """The pages of all layers, `n_pages[g]` in each layer of group g: all its pages of keys, then all those of values.

    Layers that are not causal share memory: each is read in the step that fills it, before the next one is filled.

    Raises ConfigError if heads cannot be kept as `types`, OutOfMemoryError if there is no memory for the pages.
    """

    def __init__(self, attentions: Sequence[Attention], n_pages: Sequence[int], table_pages: int,
                 types: CacheTypes) -> None:
        _check_types(attentions, types)
        self.types = types
        self._row_bytes = table_pages * np.dtype(np.int32).itemsize
        self._group_of = {layer: i for i, group in enumerate(kv_groups(attentions)) for layer in group.layers}
        owners = {op.layer if op.causal else _page_bytes(op, types): op for op in attentions}
        sizes = [(n_pages[self._group_of[op.layer]], page_bytes)
                 for op in owners.values() for page_bytes in _page_bytes(op, types)]
        self._arena = Arena(sum(aligned(n * page_bytes) for n, page_bytes in sizes), "keys and values")
        pools: list[Pages] = []
        start = 0
        for n, page_bytes in sizes:
            pools.append(self._arena.bytes[start: start + n * page_bytes].reshape(n, page_bytes))
            start += aligned(n * page_bytes)
        keys_and_values = dict(zip(owners, zip(pools[::2], pools[1::2], strict=True), strict=True))
        self._layers = {op.layer: keys_and_values[op.layer if op.causal else _page_bytes(op, types)]
                        for op in attentions}
        self._groups: list[list[Pages]] = [[] for _ in n_pages]
        for layer, kv in self._layers.items():
            self._groups[self._group_of[layer]] += kv

    @property
    def size_bytes(self) -> int:
        return self._arena.size_bytes

    def addresses(self, layer: int) -> dict[str, int]:
        """The fields of kernels that say where a layer's pages are, and in a sequence's page table their ids."""
        keys, values = self._layers[layer]
        return {"k_pool": int(keys.ctypes.data), "v_pool": int(values.ctypes.data),
                "table_row": self._group_of[layer] * self._row_bytes}

    def copy_page(self, group: int, source: int, target: int) -> None:
        """See Backend.copy_page."""
        for pool in self._groups[group]:
            pool[target] = pool[source]

    def page_bytes(self, group: int) -> int:
        """See Backend.page_bytes."""
        return sum(pool.shape[1] for pool in self._groups[group])

    def read_page(self, group: int, page: int) -> bytes:
        """Keys, then values, of each layer in turn."""
        return b"".join(pool[page].tobytes() for pool in self._groups[group])

    def write_page(self, group: int, page: int, data: bytes) -> None:
        """See Backend.write_page."""
        if len(data) != self.page_bytes(group):
            raise ValueError(f"{len(data):,} bytes for a page of KV group {group}, expected {self.page_bytes(group):,}")
        start, whole = 0, np.frombuffer(data, np.uint8)
        for pool in self._groups[group]:
            pool[page] = whole[start: start + pool.shape[1]]
            start += pool.shape[1]


def _page_bytes(op: Attention, types: CacheTypes) -> tuple[int, int]:
    """Bytes of a layer's page of keys and of one of values."""
    k, v = (PAGE_TOKENS * kv_bytes(op.n_head_kv * dim, kind)
            for dim, kind in zip((op.head_dim_k, op.head_dim_v), types, strict=True))
    return k, v


def _check_types(attentions: Sequence[Attention], types: CacheTypes) -> None:
    """Raises ConfigError if the model's heads cannot be kept so."""
    for op in attentions:
        for letter, kind, dim in zip("kv", types, (op.head_dim_k, op.head_dim_v), strict=True):
            if kind == "q8_0" and dim % QUANT_BLOCK:
                raise ConfigError(f"cache_type_{letter}='q8_0': layer {op.layer} of this model has heads of {dim} "
                                  f"dimensions, and q8_0 needs a multiple of {QUANT_BLOCK}; use 'f16'")
