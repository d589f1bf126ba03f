"""The types of keys and values, and how many tokens' a page of memory holds.

"f16" and "f32" are as they are; "q8_0" is llama.cpp's: 32 values along a head's dimensions share a scale (see `q8.py`).
"""

from typing import Literal, get_args

KVType = Literal["f16", "q8_0", "f32"]
KV_TYPES: tuple[KVType, ...] = get_args(KVType)
PAGE_TOKENS = 32        # of a page; where keys lie in one and the kernels of attention are built for it
QUANT_BLOCK = 32        # values that share a scale in q8_0
BLOCK_BYTES: dict[KVType, int] = {"f16": 2 * QUANT_BLOCK, "q8_0": QUANT_BLOCK + 2, "f32": 4 * QUANT_BLOCK}


def kv_bytes(n_values: int, kind: KVType) -> int:
    """Bytes that `n_values` keys or values of a token take, whole blocks of them in q8_0."""
    return n_values * BLOCK_BYTES[kind] // QUANT_BLOCK
