"""Sizes and kernel names of the packed weight formats; what the bytes are stands in each format's own file. No Numba.

Quantised formats without a packed layout of their own are expanded to the one of `expanded.py` (int8 weights, a float32
scale per 16), which holds any of them exactly.
"""

from dataclasses import dataclass

from ggpy.gguf import TensorInfo, TensorType
from ggpy.kernels.cpu.arguments import ARRANGED_BYTES, BLOCK, DIRECT_ROWS, EMBED_LANES, FILE_UNIT_BLOCKS, GROUP_ROWS


@dataclass(frozen=True, slots=True)
class Packing:
    """A group of GROUP_ROWS rows is made of units: `unit_bytes` hold `unit_weights` weights of each row.

    The kernels of the format are "<module>.linear", "<module>.expert_linear" and "<module>.pack". `int8` says that
    they read int8 activations, else float32 ones. `direct` says that "<module>.mapped_linear" multiplies a few rows by
    weights as they lie in the file, instead of packing each group anew. `embeds` says that there is "<module>.embed",
    which looks up rows by number.
    """

    module: str
    unit_weights: int
    unit_bytes: int
    int8: bool = True
    direct: bool = False
    embeds: bool = False

    def n_units(self, n_in: int) -> int:
        return -(-n_in // self.unit_weights)

    def n_blocks(self, n_in: int) -> int:
        """Blocks of 32 weights in a packed row, the zeros at its end included."""
        return self.n_units(n_in) * self.unit_weights // BLOCK

    def group_bytes(self, n_in: int) -> int:
        return self.n_units(n_in) * self.unit_bytes

    def size_bytes(self, n_out: int, n_in: int) -> int:
        return -(-n_out // GROUP_ROWS) * self.group_bytes(n_in)

    def mapped_scratch_bytes(self, n_in: int) -> int:
        """Work memory behind LINEAR_BYTES that a thread needs for weights read from the file (see mapped.py)."""
        n_file_units = -(-n_in // (FILE_UNIT_BLOCKS * BLOCK))
        return max(self.group_bytes(n_in), n_file_units * DIRECT_ROWS * ARRANGED_BYTES)


PACKINGS = {
    TensorType.F32: Packing("f32", 1, 64, int8=False, embeds=True),
    TensorType.F16: Packing("f16", 1, 32, int8=False, embeds=True),
    TensorType.BF16: Packing("bf16", 1, 32, int8=False, embeds=True),
    TensorType.Q4_0: Packing("q4_0", 64, 576, direct=True, embeds=True),
    TensorType.Q4_1: Packing("q4_1", 64, 640, direct=True),
    TensorType.Q5_0: Packing("q5_0", 64, 704, direct=True, embeds=True),
    TensorType.Q5_1: Packing("q5_1", 64, 768, direct=True),
    TensorType.Q8_0: Packing("q8_0", 64, 1088, direct=True, embeds=True),
    TensorType.Q2_K: Packing("q2_k", 256, 1344),
    TensorType.Q3_K: Packing("q3_k", 256, 1792),
    TensorType.Q4_K: Packing("q4_k", 256, 2304, direct=True, embeds=True),
    TensorType.Q5_K: Packing("q5_k", 256, 2816, direct=True, embeds=True),
    TensorType.Q6_K: Packing("q6_k", 256, 3392, direct=True, embeds=True),
    TensorType.IQ4_NL: Packing("iq4_nl", 64, 576),
    TensorType.IQ4_XS: Packing("iq4_xs", 256, 2176),
}
EXPANDED = Packing("expanded", 64, 2 * (2 * 64 + 512))


def packing_of(tensor_type: TensorType, *, float32: bool = False) -> Packing:
    """How weights of this type are packed; `float32` turns every format into float32 weights (the truth path)."""
    if float32 or tensor_type is TensorType.F64:
        return PACKINGS[TensorType.F32]
    return PACKINGS.get(tensor_type, EXPANDED)


def embed_kernel(weight: TensorInfo) -> str | None:
    """The kernel that looks up rows of `weight`; None: NumPy has to, as for formats that few keep embeddings in."""
    packing = PACKINGS.get(weight.type)
    if packing is None or not packing.embeds or weight.shape[-1] % EMBED_LANES:
        return None
    return f"{packing.module}.embed"
