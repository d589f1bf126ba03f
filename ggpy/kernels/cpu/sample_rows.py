"""The rows of a step, shared among the threads: for each the tape of its request."""

from ggpy.kernels.cpu.arguments import WORD
from ggpy.kernels.cpu.atomic import atomic_add, call_kernel
from ggpy.kernels.cpu.kernel import kernel
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, LANES, LARGEST, N_START, RESULT, ROW, ROW_BYTES, ROWS
from ggpy.kernels.cpu.sample_simd import bits_not_at_most
from ggpy.kernels.cpu.simd import load_first, load_i32, load_i64, splat_f32x16, store_i64


@kernel
def run(args, step, item, n_items):
    """Runs the tape of each of `rows`, on candidates that are all tokens at first; a row has one thread alone.

    A row with a logit that is infinite or no number has no token; -inf is that of one that cannot come.
    """
    candidates = load_i64(args + ROWS.candidates) + item * load_i64(args + ROWS.stride)
    largest = splat_f32x16(LARGEST)
    while True:
        i = atomic_add(args + ROWS.next, 1)
        if i >= load_i64(args + ROWS.n_rows):
            return
        row = load_i64(args + ROWS.rows) + i * ROW_BYTES
        for j in range(N_START):
            store_i64(candidates + WORD * j, load_i64(row + WORD * j))
        n, logits, broken = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits), 0
        for j in range(0, n, LANES):
            broken |= bits_not_at_most(load_first(logits + 4 * j, n - j), largest)
        store_i64(candidates + CANDIDATES.is_broken, broken)
        entry, n_entries = load_i64(row + ROW.tape), load_i64(row + ROW.n_entries)
        while n_entries > 0 and load_i64(candidates + CANDIDATES.is_broken) == 0:
            call_kernel(load_i64(entry), load_i64(entry + 8), candidates, 0, 0)
            entry += 16
            n_entries -= 1
        at, ids = load_i64(candidates + CANDIDATES.at), load_i64(candidates + CANDIDATES.ids)
        result = load_i64(row + ROW.result)
        store_i64(result + RESULT.token, at if ids == 0 else load_i32(ids + 4 * at))
        store_i64(result + RESULT.is_broken, load_i64(candidates + CANDIDATES.is_broken))
        store_i64(result + RESULT.n_tokens, load_i64(row + ROW.n_tokens))
