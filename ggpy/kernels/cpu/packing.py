"""Sizes and kernel names of the packed weight formats; what the bytes are stands in each format's own file. No Numba.

Formats without a packed layout of their own are expanded to the one of `expanded.py` (int8 weights, a float32 scale per
16), which holds any of them exactly.
"""

from dataclasses import dataclass

from ggpy.gguf import TensorType
from ggpy.kernels.cpu.arguments import BLOCK, GROUP_ROWS


@dataclass(frozen=True, slots=True)
class Packing:
    """A group of GROUP_ROWS rows is made of units of `unit_blocks` blocks of 32 weights, `unit_bytes` each.

    The kernels of the format are "<module>.linear" and "<module>.pack".
    """

    module: str
    unit_blocks: int
    unit_bytes: int

    def n_blocks(self, n_in: int) -> int:
        """Blocks of 32 weights in a packed row, the zeros at its end included."""
        return -(-n_in // (BLOCK * self.unit_blocks)) * self.unit_blocks

    def group_bytes(self, n_in: int) -> int:
        return self.n_blocks(n_in) // self.unit_blocks * self.unit_bytes

    def size_bytes(self, n_out: int, n_in: int) -> int:
        return -(-n_out // GROUP_ROWS) * self.group_bytes(n_in)


PACKINGS = {
    TensorType.Q4_1: Packing("q4_1", 2, 640),
}
