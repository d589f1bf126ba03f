"""The activations between the two halves of a feed-forward network: out = act(x), or act(x) * up in the gated form.

    silu           x * sigmoid(x)
    gelu           x * sigmoid(2 c (x + 0.044715 x^3)),  c = sqrt(2 / pi): the tanh form of it
    gelu_quick     x * sigmoid(1.702 x)
    relu           max(x, 0);  relu_squared its square
    swiglu_oai     g * sigmoid(1.702 g) * (u + 1),  g = min(x, 7), u = up held in -7..7

Threads share runs of 32 values, so even a single row is spread over all of them.
"""

from ggpy.kernels.cpu.arguments import ACTIVATION as ARGS
from ggpy.kernels.cpu.arguments import BLOCK
from ggpy.kernels.cpu.exp import exp
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.quantize import quantize_run
from ggpy.kernels.cpu.simd import (
    fma,
    load_first,
    load_i64,
    maximum,
    minimum,
    splat_f32x16,
    store_first,
)

GELU_LINEAR = 1.5957691216057308            # 2 sqrt(2 / pi)
GELU_CUBIC = 0.07135481627260025            # 0.044715 times that
QUICK = 1.702
OAI_LIMIT = 7.0


def make_activation(combine):
    """The kernel that leaves combine(x, up, is_gated) in out, for vectors of x and up."""

    @device
    def run(x, up, out, n):
        """n values."""
        for i in range(0, n, 16):
            u = load_first(up + 4 * i, n - i) if up != 0 else splat_f32x16(0.0)
            store_first(out + 4 * i, n - i, combine(load_first(x + 4 * i, n - i), u, up != 0))

    @kernel
    def activation(args, step, item, n_items):
        n_rows = load_i64(step + load_i64(args + ARGS.n_rows))
        width = load_i64(args + ARGS.width)
        q = load_i64(args + ARGS.q)
        n_filled = (width + BLOCK - 1) // BLOCK
        n_blocks = load_i64(args + ARGS.n_blocks) if q != 0 else n_filled
        at, end = n_rows * n_blocks * item // n_items, n_rows * n_blocks * (item + 1) // n_items
        while at < end:
            row, first = at // n_blocks, at % n_blocks
            last = min(n_blocks, first + end - at)
            start = row * width * 4
            up = load_i64(args + ARGS.up)
            out = load_i64(args + ARGS.out) + start
            skip = first * BLOCK * 4
            run(load_i64(args + ARGS.x) + start + skip, up + start + skip if up != 0 else 0, out + skip,
                min(width, last * BLOCK) - first * BLOCK)
            if q != 0:
                quantize_run(out, first, last, row, n_rows, n_blocks, n_filled, q, load_i64(args + ARGS.da),
                             load_i64(args + ARGS.ys), load_i64(args + ARGS.n16))
            at += last - first

    return activation


def gated(act):
    """act(x), times up in the gated form."""

    @device
    def combine(x, up, is_gated):
        y = act(x)
        return y * up if is_gated else y

    return combine


@device
def times_sigmoid(x, z):
    """x / (1 + e^-z)."""
    return x / (exp(splat_f32x16(0.0) - z) + 1.0)


@device
def silu_of(x):
    return times_sigmoid(x, x)


@device
def gelu_of(x):
    return times_sigmoid(x, x * fma(x * x, splat_f32x16(GELU_CUBIC), splat_f32x16(GELU_LINEAR)))


@device
def gelu_quick_of(x):
    return times_sigmoid(x, x * QUICK)


@device
def relu_of(x):
    return maximum(splat_f32x16(0.0), x)


@device
def relu_squared_of(x):
    y = relu_of(x)
    return y * y


@device
def swiglu_oai_of(x, up, is_gated):
    g = minimum(splat_f32x16(OAI_LIMIT), x)
    u = minimum(splat_f32x16(OAI_LIMIT), maximum(splat_f32x16(-OAI_LIMIT), up))
    return times_sigmoid(g, g * QUICK) * (u + 1.0)


silu = make_activation(gated(silu_of))
gelu = make_activation(gated(gelu_of))
gelu_quick = make_activation(gated(gelu_quick_of))
relu = make_activation(gated(relu_of))
relu_squared = make_activation(gated(relu_squared_of))
swiglu_oai = make_activation(swiglu_oai_of)
