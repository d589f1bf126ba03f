"""The four kernels of a packed format, made from how it packs a block and how it multiplies a group."""

from ggpy.kernels.cpu.interleave import make_pack, make_pack_group
from ggpy.kernels.cpu.mapped import make_mapped_linear
from ggpy.kernels.cpu.matmul import make_expert_linear, make_linear


def make_kernels(rows, block_bytes, unit_bytes, blocks_per_unit, pack_block, direct=None):
    """The kernels "linear", "expert_linear", "pack" and "mapped_linear": see `matmul.py`, `interleave.py`, `mapped.py`.

    `direct` is the product with weights as they lie in the file, of formats that have one.
    """
    pack_group = make_pack_group(block_bytes, unit_bytes, blocks_per_unit, pack_block)
    return (make_linear(rows), make_expert_linear(rows), make_pack(pack_group),
            make_mapped_linear(pack_group, rows, direct))
