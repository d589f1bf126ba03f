"""Which formats have a kernel that looks up rows of weights, and the argument block of these. Imports no Numba."""

from ggpy.gguf import TensorInfo, TensorType
from ggpy.kernels.cpu.arguments import fields

LANES = 16      # weights that a kernel writes at a time
# index: the field of the step that has the number of each row, as the offset of its address; 0: row 0 for all
EMBED = fields("weight row_bytes width index scale out")
KERNELS = {
    TensorType.F32: "f32", TensorType.F16: "f16", TensorType.BF16: "bf16",
    TensorType.Q4_0: "q4_0", TensorType.Q5_0: "q5_0", TensorType.Q8_0: "q8_0",
    TensorType.Q4_K: "q4_k", TensorType.Q5_K: "q5_k", TensorType.Q6_K: "q6_k",
}


def embed_kernel(weight: TensorInfo) -> str | None:
    """The kernel that looks up rows of `weight`; None: NumPy has to, as for formats that few keep embeddings in."""
    name = KERNELS.get(weight.type)
    return None if name is None or weight.shape[-1] % LANES else f"embed.{name}"
