"""BF16 weights, the upper halves of float32 numbers, widened as they are read."""

from ggpy.kernels.cpu.embed import make_float_embed
from ggpy.kernels.cpu.float_linear import make_expert_linear, make_linear, make_pack
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.simd import as_f32x16, load_i16x16, zext_i32

SIZE = 2


@device
def load_bf16x16(p):
    return as_f32x16(zext_i32(load_i16x16(p)) << 16)


linear = make_linear(load_bf16x16, SIZE)
expert_linear = make_expert_linear(load_bf16x16, SIZE)
pack = make_pack(SIZE)
embed = make_float_embed(load_bf16x16, SIZE)
