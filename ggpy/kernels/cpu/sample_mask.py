"""The sampler of constrained answers: only the tokens of a mask may come."""

from ggpy.kernels.cpu.kernel import kernel
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, LANES, MASK
from ggpy.kernels.cpu.sample_order import own_logits
from ggpy.kernels.cpu.sample_simd import keep_bits
from ggpy.kernels.cpu.simd import load_first, load_i64, load_u16, splat_f32x16, store, store_i64

INF = float("inf")


@kernel
def mask(args, candidates, how, unused):
    """Makes the logits of tokens whose bit in `words` is not set -inf, where the candidates still are all tokens.

    Without words nothing happens. A mask without a bit leaves nothing to choose from.
    """
    words, n = load_i64(args + MASK.words), load_i64(candidates + CANDIDATES.n)
    if words == 0:
        return
    logits, never, found = own_logits(candidates), splat_f32x16(-INF), 0
    for i in range(0, n, LANES):
        bits = load_u16(words + i // 8)
        found |= bits
        store(logits + 4 * i, keep_bits(load_first(logits + 4 * i, n - i), bits, never))
    if found == 0:
        store_i64(candidates + CANDIDATES.is_broken, 1)
