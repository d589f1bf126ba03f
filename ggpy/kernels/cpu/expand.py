"""The packed layout that holds any quantised format, filled in NumPy when a model is loaded. Imports no Numba.

A format is worth a layout of its own when people run it for speed; for the others this one costs memory (10 bits a
weight), but no code.
"""

import numpy as np
import numpy.typing as npt

from ggpy.formats import integers
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.arguments import GROUP_ROWS

# two blocks of 32 weights of GROUP_ROWS rows
UNIT = np.dtype([
    ("scale", "<f4", (2, 2, GROUP_ROWS)),       # block, its first or last 16 weights, row
    ("q", "i1", (2, 8, GROUP_ROWS, 4)),         # block, line, row, and weight 4 * line + the last index
])
SLICE_WEIGHTS = 1 << 20                         # weights expanded at a time: some 20 MB of temporary arrays


def expand(rows: npt.NDArray[np.uint8], tensor_type: TensorType) -> npt.NDArray[np.uint8]:
    """Rows (n_out, row_bytes) of a file as packed groups (n_groups, group_bytes), zeros where rows or blocks lack."""
    n_out, n_in = len(rows), rows.shape[1] // tensor_type.block_bytes * tensor_type.block_size
    packed = np.zeros((-(-n_out // GROUP_ROWS), -(-n_in // 64)), UNIT)
    step = max(1, SLICE_WEIGHTS // (n_in * GROUP_ROWS))
    for g in range(0, len(packed), step):
        _expand_groups(rows[g * GROUP_ROWS: (g + step) * GROUP_ROWS], tensor_type, packed[g: g + step])
    return packed.view(np.uint8)


def _expand_groups(rows: npt.NDArray[np.uint8], tensor_type: TensorType, packed: npt.NDArray[np.void]) -> None:
    """Fills whole groups (n_groups, n_units) from the rows that there are."""
    stated = integers(rows, tensor_type)
    assert stated.min is None, f"{tensor_type.name} has minimums: it needs a layout of its own"
    n_out, n_blocks = stated.d.shape
    n_groups, n_units = packed.shape
    scale = np.zeros((n_groups * GROUP_ROWS, n_units * 2, 2), np.float32)
    scale[:n_out, :n_blocks] = stated.scale.reshape(n_out, n_blocks, 2) * stated.d[..., None]
    q = np.zeros((n_groups * GROUP_ROWS, n_units * 2, 8, 4), np.int8)
    q[:n_out, :n_blocks] = stated.q.reshape(n_out, n_blocks, 8, 4)
    # (group, row, unit, block, ...) to (group, unit, block, ..., row, ...)
    packed["scale"] = scale.reshape(n_groups, GROUP_ROWS, n_units, 2, 2).transpose(0, 2, 3, 4, 1)
    packed["q"] = q.reshape(n_groups, GROUP_ROWS, n_units, 2, 8, 4).transpose(0, 2, 3, 4, 1, 5)
