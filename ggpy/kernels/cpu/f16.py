"""F16 weights, widened to float32 as they are read."""

from ggpy.kernels.cpu.embed import make_float_embed
from ggpy.kernels.cpu.float_linear import make_expert_linear, make_linear, make_pack
from ggpy.kernels.cpu.simd import load_f16x16

SIZE = 2

linear = make_linear(load_f16x16, SIZE)
expert_linear = make_expert_linear(load_f16x16, SIZE)
pack = make_pack(SIZE)
embed = make_float_embed(load_f16x16, SIZE)
