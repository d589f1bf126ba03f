"""Products of pairs of weight blocks with 16 or 32 rows of activations at a time, in the tiles of AMX.

The eight registers of a block are a tile of weights as they stand, 16 rows of activations one of activations, and row t
of their product is what `sums` of blocks.py gives for row t: the same integers, so all bits are the same too.

Sums come out through memory, and late, so they are added to `acc` a pair later: the products of a pair run while the
sums of the one before are added. What is known of a pair until then stands behind the partial sums of the scratch.
Sums leave their tiles only when those of the pair before, which have the same place, have been read. They could have
places of their own, but reads of `acc` whose addresses end like those of earlier writes would wait for these.
"""

from ggpy.kernels.cpu.arguments import CHUNK_ROWS, SUMS_BYTES, TILE_BYTES
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.simd import (
    load_i32x16,
    load_i64,
    load_vectors,
    splat_i8x64,
    splat_i32x16,
    store,
    store_i64,
    store_vectors,
)
from ggpy.kernels.cpu.tiles import (
    LINE,
    TILE_HEIGHT,
    add_product,
    clear_tile,
    configure,
    load_tile,
    release,
    store_tile,
)

ROW = 32                                # bytes of a block of activations
TILE_OF_ROWS = TILE_HEIGHT * ROW
MAX_SCALES = 6                          # vectors of a block
ROWS_AT_ONCE = 4                        # to add sums
# From `acc` on: the configuration; for a pair, and for the one before it, the number of the first block and the scales;
# the weights, 12 lines for each block; the sums over the first and the last half of each, 32 rows
CONFIG = SUMS_BYTES
PAIRS = CONFIG + LINE
PAIR_BYTES = LINE + 2 * MAX_SCALES * LINE
WEIGHTS = PAIRS + 2 * PAIR_BYTES
BLOCK_BYTES = 12 * LINE
SUMS = WEIGHTS + 2 * BLOCK_BYTES
GROUP_BYTES = TILE_HEIGHT * LINE
HALF_BYTES = 2 * GROUP_BYTES
assert SUMS + 4 * HALF_BYTES == SUMS_BYTES + TILE_BYTES
assert CHUNK_ROWS == 2 * TILE_HEIGHT

clear_0, clear_1, clear_2, clear_3 = map(clear_tile, range(4))
store_0, store_1, store_2, store_3 = map(store_tile, range(4))
load_4, load_5, load_6, load_7 = map(load_tile, range(4, 8))
add_0_46, add_1_56, add_2_47 = add_product(0, 4, 6), add_product(1, 5, 6), add_product(2, 4, 7)
add_1_47, add_2_56, add_3_57 = add_product(1, 4, 7), add_product(2, 5, 6), add_product(3, 5, 7)


@device
def n_tiled_rows(m):
    """How many of m rows of activations meet the weights in tiles."""
    return m - m % TILE_HEIGHT


@device
def begin_tiles(acc, m):
    """What a thread does before it multiplies m rows."""
    if m >= TILE_HEIGHT:
        configure(acc + CONFIG)
        # between the halves of a block, see `multiply_halves`. Where whole blocks are multiplied, weights take their
        # place: eight lines for each call are too few to have a second form of this function
        for k in range(4, 8):
            store(acc + WEIGHTS + k * LINE, splat_i8x64(0))
            store(acc + WEIGHTS + BLOCK_BYTES + k * LINE, splat_i8x64(0))


@device
def end_tiles(m):
    if m >= TILE_HEIGHT:
        release()


@device
def store_4_lines(p, a, b, c, d):
    store(p, a)
    store(p + LINE, b)
    store(p + 2 * LINE, c)
    store(p + 3 * LINE, d)


@device
def put_block(p, last, w):
    """The lines of a block, those of its last half from `last` on."""
    store_4_lines(p, w[0], w[1], w[2], w[3])
    store_4_lines(p + last, w[4], w[5], w[6], w[7])


@device
def multiply_whole(acc, n_tiled, y, z):
    """The sums over both blocks, of activations at y and z: tiles 0 and 1 for the first block, 2 and 3."""
    load_6(acc + WEIGHTS, LINE)
    load_7(acc + WEIGHTS + BLOCK_BYTES, LINE)
    load_4(y, ROW)
    clear_0()
    add_0_46()
    load_4(z, ROW)
    clear_2()
    add_2_47()
    if n_tiled > TILE_HEIGHT:
        load_5(y + TILE_OF_ROWS, ROW)
        clear_1()
        add_1_56()
        load_5(z + TILE_OF_ROWS, ROW)
        clear_3()
        add_3_57()


@device
def keep_first_whole(sums, n_tiled):
    store_0(sums, LINE)
    if n_tiled > TILE_HEIGHT:
        store_1(sums + GROUP_BYTES, LINE)


@device
def keep_last_whole(sums, n_tiled):
    store_2(sums, LINE)
    if n_tiled > TILE_HEIGHT:
        store_3(sums + GROUP_BYTES, LINE)


@device
def multiply_halves(weights, n_tiled, y):
    """The sums over the first and the last half of a block: tiles 0 and 1 for 16 rows, 2 and 3 for the next.

    The tile of the first half has zeros for the last, and the other way round.
    """
    load_6(weights, LINE)
    load_7(weights + 4 * LINE, LINE)
    load_4(y, ROW)
    clear_0()
    add_0_46()
    clear_1()
    add_1_47()
    if n_tiled > TILE_HEIGHT:
        load_5(y + TILE_OF_ROWS, ROW)
        clear_2()
        add_2_56()
        clear_3()
        add_3_57()


@device
def keep_halves(sums, n_tiled):
    store_0(sums, LINE)
    store_1(sums + HALF_BYTES, LINE)
    if n_tiled > TILE_HEIGHT:
        store_2(sums + GROUP_BYTES, LINE)
        store_3(sums + HALF_BYTES + GROUP_BYTES, LINE)


@device
def first_halves(acc, n_tiled, y, z):
    multiply_halves(acc + WEIGHTS, n_tiled, y)


@device
def last_halves(acc, n_tiled, z):
    multiply_halves(acc + WEIGHTS + BLOCK_BYTES, n_tiled, z)


@device
def nothing(acc, n_tiled, z):
    pass


@device
def sums_of_whole(p):
    return load_i32x16(p), splat_i32x16(0)


@device
def sums_of_halves(p):
    return load_i32x16(p), load_i32x16(p + HALF_BYTES)


def make_finish(term, gap):
    """finish(k, pair, n_tiled, m, da, ys, n16, acc): adds the sums of block k, 0 or 1, of the pair at `pair`."""
    value, add, n_scales, by_halves = term
    scales_at = load_vectors(n_scales)
    sums_at = sums_of_halves if by_halves else sums_of_whole

    @device
    def finish(k, pair, n_tiled, m, da, ys, n16, acc):
        j, scales = load_i64(pair) + k * gap, scales_at(pair + LINE + k * n_scales * LINE)
        f, sums = acc + j % 8 * (64 * m), acc + SUMS + 2 * k * HALF_BYTES
        for t in range(0, n_tiled, ROWS_AT_ONCE):
            for i in range(t, t + ROWS_AT_ONCE):
                s = j * m + i
                v = value(sums_at(sums + i * LINE), n16 + (s + j * m) * 4, m * 4, scales)
                add(f + i * 64, v, da + s * 4, ys + s * 4, scales)

    return finish


def make_tiled(signed, term, gap, add_rows):
    """`add_pair` of blocks.py, which hands rows that do not fill a tile to `add_rows`."""
    n_scales, by_halves = term.n_scales, term.by_halves
    put_scales, finish = store_vectors(n_scales), make_finish(term, gap)
    last = 8 * LINE if by_halves else 4 * LINE
    multiply_first, multiply_last = (first_halves, last_halves) if by_halves else (multiply_whole, nothing)
    keep_first, keep_last = (keep_halves, keep_halves) if by_halves else (keep_first_whole, keep_last_whole)

    @device
    def add_pair(j, n_blocks, m, q, da, ys, n16, acc, w, x, w_scales, x_scales):
        n_tiled = n_tiled_rows(m)
        odd = j * gap // 2 % 2
        pair, before = acc + PAIRS + odd * PAIR_BYTES, acc + PAIRS + (1 - odd) * PAIR_BYTES
        y = q + j * m * ROW
        z = y + gap * m * ROW
        if n_tiled > 0:
            store_i64(pair, j)
            put_scales(pair + LINE, w_scales)
            put_scales(pair + LINE + n_scales * LINE, x_scales)
            put_block(acc + WEIGHTS, last, signed(w))
            put_block(acc + WEIGHTS + BLOCK_BYTES, last, signed(x))
            multiply_first(acc, n_tiled, y, z)
        if n_tiled < m:
            add_rows(n_tiled, j, m, q, da, ys, n16, acc, w, x, w_scales, x_scales)
        if n_tiled > 0:
            if j > 0:
                finish(0, before, n_tiled, m, da, ys, n16, acc)
            keep_first(acc + SUMS, n_tiled)
            multiply_last(acc, n_tiled, z)
            if j > 0:
                finish(1, before, n_tiled, m, da, ys, n16, acc)
            keep_last(acc + SUMS + 2 * HALF_BYTES, n_tiled)
            if j + gap + 1 == n_blocks:
                finish(0, pair, n_tiled, m, da, ys, n16, acc)
                finish(1, pair, n_tiled, m, da, ys, n16, acc)

    return add_pair
