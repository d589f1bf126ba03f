"""How keys and values lie in the pages of the KV pool. Imports no Numba.

A page holds PAGE_TOKENS = 32 tokens of all kv heads. Layers that see the same positions are a group: they have the same
pages, and a row of the sequence's page table. The token at position p stands in page page_table[group][p / 32] at slot
p % 32. The part of one kv head starts at

    pool + (page * n_head_kv + head) * head_dim * DIM_BYTES[type]

where a page of K and one of V are, by type:

    f16, f32    K  [dim][token]                              V  [token][dim]
    q8_0        K  int8 [dim / 2][token][2]                  V  int8 [dim / 32][token][32]
                then both: the scales, f16 [dim / 32][token]

q8_0 is llama.cpp's: 32 values along a head's dimensions share a scale d (see formats/q8.py), so head_dim is a multiple
of 32. Keys may have a constant taken off before. Pairs of dimensions and blocks of 32 stand together because the
kernels of attention read them so.
"""

from ggpy.formats.kv import KV_TYPES, PAGE_TOKENS, KVType, kv_bytes

DIM_BYTES: dict[KVType, int] = {kind: kv_bytes(PAGE_TOKENS, kind) for kind in KV_TYPES}
"""Bytes of one dimension of a kv head in a page, which are those of 32 values of one token: both are 32 values."""
