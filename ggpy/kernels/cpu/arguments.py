"""The argument block of every kernel: the interface between the tape's encoder and the kernels. Imports no Numba.

A block is an array of int64 fields; an address is 0 where a part is absent, and a float32 stands in the low half of its
field. `n_rows` is the offset of the row count in the step descriptor (`STEP.n_tokens` or `STEP.n_outputs`). Matrices
are float32 rows without gaps.
"""

from collections import namedtuple
from typing import Any

import numpy as np
import numpy.typing as npt

WORD = 8                # bytes of a field
# rows that the int8 activations of a linear interleave (see quantize.py): each decoded weight block meets so many. On
# Zen 4 one thread's products of 512 rows run 1 to 5% faster than with 16; the sums of 32 are half of a level 1 cache
CHUNK_ROWS = 32
GROUP_ROWS = 16         # weight rows that a packed group interleaves (see matmul.py)
BLOCK = 32              # activations per scale
FILE_UNIT_BLOCKS = 8    # blocks of a row that mapped weights decode at a time (see file_units.py)
DIRECT_ROWS = 8         # up to so many activation rows are multiplied by mapped weights without packing them first
# what a linear has at the start of each thread's scratch: its partial sums, then what the products of tiles need
SUMS_BYTES = 8 * CHUNK_ROWS * GROUP_ROWS * 4
# of tiles: a line of configuration, 2 pairs of 13 lines, 2 blocks of 12, 4 sums of 32 lines, of 64 bytes each; they
# are named in tile_products.py, which needs Numba
TILE_BYTES = (1 + 2 * 13 + 2 * 12 + 4 * 32) * 64
LINEAR_BYTES = SUMS_BYTES + TILE_BYTES


def fields(names: str) -> Any:
    """Byte offsets of int64 fields: `ARGS = fields("x out n")`, then `load_i64(args + ARGS.n)`."""
    words = names.split()
    return namedtuple("Fields", words)(*range(0, WORD * len(words), WORD))


def offsets(**places: int) -> Any:
    """Byte offsets of named parts, as constants for kernels."""
    names = list(places)
    return namedtuple("Offsets", names)(**places)


def argument_block(layout: Any, **values: int | float) -> npt.NDArray[np.int64]:
    """The int64 array that `layout` describes; every field must be given, no other. Floats become float32."""
    if set(values) != set(layout._fields):
        raise TypeError(f"fields {sorted(set(values) ^ set(layout._fields))} are missing or unknown")
    block = np.zeros(len(layout._fields), np.int64)
    for i, name in enumerate(layout._fields):
        value = values[name]
        if isinstance(value, float):
            block[i: i + 1].view(np.float32)[0] = value
        else:
            block[i] = value
    return block


# how mapped weights want eight blocks of one row of activations: see file_units.py for the order of q. da, ys and n16
# (that of the first 16, then of the last 16 of a block) are eight 32-bit numbers each
ARRANGED = offsets(q=0, da=256, ys=288, n16=320, n16_last=352)
ARRANGED_BYTES = 384

# the int8 form of a float32 matrix; n_blocks is even (or a multiple of 8 for K-quants), n_filled * 32 its real width
INT8 = "q da ys n16 n_blocks"

QUANTIZE = fields(f"x {INT8} n_filled n_rows")
PACK = fields("source row_bytes packed group_bytes n_out n_in")
LINEAR = fields(f"weight group_bytes n_out {INT8} out bias residual n_rows")
MAPPED_LINEAR = fields(f"weight row_bytes n_in group_bytes n_out {INT8} out bias residual n_rows")
FLOAT_LINEAR = fields("weight group_bytes n_out n_in x out bias residual n_rows")
# where a kernel can leave its result in int8 as well, q is 0 if that is not wanted
# weight_stride: floats between the parts of a weight, 0 where the groups share it
RMS_NORM = fields(f"x weight weight_stride groups eps width out {INT8} n_rows")
LAYER_NORM = fields(f"x weight bias groups eps width out {INT8} n_rows")
ACTIVATION = fields(f"x up width out {INT8} n_rows")
# terms: int64 (n_adapters, 3), see LOW_RANK_TERM; scales: float32 (n_tokens, n_adapters)
LOW_RANK = fields("x n_in out n_out terms n_adapters scales row_is_output n_rows")
LOW_RANK_TERM = fields("a b rank")      # float32 a (rank, n_in), 0: none, and b (rank, n_out)
ADD = fields("a b width out n_rows")
SCALE = fields("x factor width out n_rows")
SOFTCAP = fields("x cap width out n_rows")
SOFTMAX = fields("x width out n_rows")
TAKE_ROWS = fields("x width out")
# index: the field of the step that has the number of each row, as the offset of its address; 0: row 0 for all
EMBED = fields("weight row_bytes width index scale out")
EMBED_LANES = 16        # weights that a kernel writes at a time, of which a row's width is a multiple
ROPE = fields("x n_head head_dim n_rot cos sin out n_rows")        # cos, sin: (n_rows, n_rot / 2)
# table_row: bytes from a sequence's page table to the row of this layer's group; k_offset: (n_head_kv, head_dim_k)
KV_STORE = fields("k v k_pool v_pool table_row k_offset n_head_kv head_dim_k head_dim_v")
# causal: 0 where rows also see what comes after them in the step; alibi, sinks: addresses of float32 (n_head,)
ATTENTION = fields("x k_pool v_pool table_row n_head n_head_kv head_dim_k head_dim_v scale window softcap causal alibi "
                   f"sinks partials out {INT8}")
# mixture of experts: routing is left in four arrays that the expert kernels read (see experts.py)
ROUTING = "experts slot_order chunks n_chunks"
# at most CHUNK_ROWS slots of one expert, from place `first` of slot_order on
CHUNK = fields("expert first n_rows")
CHUNK_BYTES = WORD * len(CHUNK._fields)
ROUTE = fields(f"logits n_expert n_used normalise scale bias out {ROUTING} n_rows")
ROUTE_SCRATCH_BYTES = 8         # of a thread's scratch memory, for each expert
EXPERT_QUANTIZE = fields(f"x x_per_slot n_used {INT8} n_filled {ROUTING} n_rows")
EXPERT_LINEAR = fields(f"weight expert_bytes group_bytes n_out n_used {INT8} out bias {ROUTING} n_rows")
EXPERT_FLOAT_LINEAR = fields(
    f"weight expert_bytes group_bytes n_out n_in x x_per_slot n_used out bias {ROUTING} n_rows")
EXPERT_SUM = fields("slots weights n_used width out n_rows")
