"""F32 weights: the product is exact but for the rounding of float32 sums."""

from ggpy.kernels.cpu.embed import make_float_embed
from ggpy.kernels.cpu.float_linear import make_expert_linear, make_linear, make_pack
from ggpy.kernels.cpu.simd import load_f32x16

SIZE = 4

linear = make_linear(load_f32x16, SIZE)
expert_linear = make_expert_linear(load_f32x16, SIZE)
pack = make_pack(SIZE)
embed = make_float_embed(load_f32x16, SIZE)
