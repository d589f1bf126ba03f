"""Linears over weights that stay as they lie in the file: each group is packed into work memory when it is needed.

No memory beyond the file's own pages, and the same bits, as the group meets the same `rows`. A prompt hardly notices,
since a group serves all its rows; a single row pays for the packing every time.
"""

from ggpy.kernels.cpu.arguments import CHUNK_ROWS, GROUP_ROWS, SUMS_BYTES
from ggpy.kernels.cpu.arguments import MAPPED_LINEAR as ARGS
from ggpy.kernels.cpu.kernel import kernel, unrolled
from ggpy.kernels.cpu.matmul import first_group, make_panel, scratch_of
from ggpy.kernels.cpu.simd import load_i64


def make_mapped_linear(pack_group, rows):
    """The kernel "mapped_linear" of a format: `pack_group` as `pack` uses it, then the product `rows`."""
    panel = make_panel(rows)

    @unrolled
    @kernel
    def mapped_linear(args, step, ith, nth):
        n_rows = load_i64(step + load_i64(args + ARGS.n_rows))
        n_out, stride = load_i64(args + ARGS.n_out), load_i64(args + ARGS.row_bytes)
        acc = scratch_of(step)
        packed = acc + SUMS_BYTES
        if n_rows == 0:
            return
        for g in range(first_group(n_out, ith, nth), first_group(n_out, ith + 1, nth)):
            source = load_i64(args + ARGS.weight) + g * GROUP_ROWS * stride
            pack_group(source, stride, min(GROUP_ROWS, n_out - g * GROUP_ROWS), packed)
            weight = packed - g * load_i64(args + ARGS.group_bytes)         # where group 0 would be
            for start in range(0, n_rows, CHUNK_ROWS):
                panel(args, ARGS, weight, g, g + 1, 0, start, min(CHUNK_ROWS, n_rows - start),
                      load_i64(args + ARGS.bias), load_i64(args + ARGS.residual), acc)

    return mapped_linear
