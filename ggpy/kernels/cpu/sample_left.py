"""The end of a chain whose probabilities are asked for: what the samplers have left."""

from ggpy.kernels.cpu.kernel import kernel
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, LANES, LEFT
from ggpy.kernels.cpu.sample_simd import call
from ggpy.kernels.cpu.simd import lane_index, load_first, load_i32x16, load_i64, store, store_i64


@kernel
def left(args, candidates, how, unused):
    """Copies the candidates' tokens and weights to `ids` and `weights`, as they stand in memory."""
    call(candidates, CANDIDATES.weigh, 0, 0)
    n, ids = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.ids)
    weights = load_i64(candidates + CANDIDATES.weights)
    for i in range(0, n, LANES):
        store(load_i64(args + LEFT.ids) + 4 * i, lane_index() + i if ids == 0 else load_i32x16(ids + 4 * i))
        store(load_i64(args + LEFT.weights) + 4 * i, load_first(weights + 4 * i, LANES))
    store_i64(args + LEFT.n, n)
