"""out = x @ weight.T (+ bias) (+ residual) for every format: the frame around a format's `rows`.

A weight matrix is packed in groups of GROUP_ROWS rows, interleaved so that one vector lane belongs to one row. A format
gives `rows(w, n_blocks, m, q, da, ys, n16, acc)`: it decodes each weight block of one group once and leaves, for m
activation rows, the eight partial sums of the canonical order in acc, float32 (8, m, 16). The order of one output:

    for block j:  S = exact integer sum;  t = RN(S * d);  acc[j % 8] = fma(t, da[j], acc[j % 8])
                  with minimums:          acc[j % 8] = fma(dm * mn, ys[j], acc[j % 8])
    result = ((acc0 + acc4) + (acc2 + acc6)) + ((acc1 + acc5) + (acc3 + acc7))  (+ bias) (+ residual)

It involves one row of weights and one of activations, so the bits of a row never depend on its company. Threads share
the groups; within a thread a panel of groups that fits the L2 cache meets all chunks of rows before the next.
"""

from ggpy.kernels.cpu.arguments import CHUNK_ROWS, GROUP_ROWS
from ggpy.kernels.cpu.arguments import LINEAR as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    load_f32,
    load_f32x16,
    load_i64,
    splat_f32x16,
    store,
    store_f32,
)
from ggpy.kernels.cpu.step import STEP

PANEL_BYTES = 256 * 1024            # half of a usual L2 cache, the rest is for activations


@device
def finish(acc, m, out, n_out, first, bias, residual):
    """Adds the eight partial sums of m rows, bias and residual, and stores columns first..first + 16 below n_out."""
    k = m * 64
    for t in range(m):
        a = acc + t * 64
        v = ((load_f32x16(a) + load_f32x16(a + 4 * k)) + (load_f32x16(a + 2 * k) + load_f32x16(a + 6 * k))) + (
            (load_f32x16(a + k) + load_f32x16(a + 5 * k)) + (load_f32x16(a + 3 * k) + load_f32x16(a + 7 * k)))
        at = (t * n_out + first) * 4
        if first + GROUP_ROWS <= n_out:
            if bias != 0:
                v = v + load_f32x16(bias + first * 4)
            if residual != 0:
                v = v + load_f32x16(residual + at)
            store(out + at, v)
        else:
            store(a, v)
            for i in range(n_out - first):
                x = load_f32(a + 4 * i)
                if bias != 0:
                    x = x + load_f32(bias + (first + i) * 4)
                if residual != 0:
                    x = x + load_f32(residual + at + 4 * i)
                store_f32(out + at + 4 * i, x)


@device
def clear(acc, m):
    for i in range(8 * m):
        store(acc + 64 * i, splat_f32x16(0.0))


def make_linear(rows):
    """The kernel "linear" of a format whose group product is `rows`."""

    @kernel
    def linear(args, step, ith, nth):
        n_rows = load_i64(step + load_i64(args + ARGS.n_rows))
        n_out = load_i64(args + ARGS.n_out)
        n_blocks = load_i64(args + ARGS.n_blocks)
        group_bytes = load_i64(args + ARGS.group_bytes)
        weight = load_i64(args + ARGS.weight)
        q, da, ys, n16 = (load_i64(args + ARGS.q), load_i64(args + ARGS.da), load_i64(args + ARGS.ys),
                          load_i64(args + ARGS.n16))
        bias = load_i64(args + ARGS.bias)
        acc = load_i64(step + STEP.scratch) + ith * load_i64(step + STEP.scratch_stride)
        n_groups = (n_out + GROUP_ROWS - 1) // GROUP_ROWS
        end = n_groups * (ith + 1) // nth
        panel = max(1, PANEL_BYTES // group_bytes)
        for g0 in range(n_groups * ith // nth, end, panel):
            for r0 in range(0, n_rows, CHUNK_ROWS):
                m = min(CHUNK_ROWS, n_rows - r0)
                at = r0 * n_blocks
                out = load_i64(args + ARGS.out) + r0 * n_out * 4
                residual = load_i64(args + ARGS.residual)
                if residual != 0:
                    residual += r0 * n_out * 4
                for g in range(g0, min(end, g0 + panel)):
                    clear(acc, m)
                    rows(weight + g * group_bytes, n_blocks, m,
                         q + at * 32, da + at * 4, ys + at * 4, n16 + at * 8, acc)
                    finish(acc, m, out, n_out, g * GROUP_ROWS, bias, residual)

    return linear
