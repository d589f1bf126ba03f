"""Random numbers of the C++ standard's mt19937. A state is its place in the words, an int64, then int32 (MT_WORDS,)."""

import numpy as np

from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.sample_candidates import MT_WORDS
from ggpy.kernels.cpu.simd import load_i32, load_i64, store_i32, store_i64

BELOW_1 = 1 - 2**-53             # the largest float64 below 1
BELOW_1_F32 = 1 - 2**-24        # the largest float32 below 1


@device
def next_bits(state):
    """The next 32 bits, as an int64."""
    words, i = state + 8, load_i64(state)
    if i == MT_WORDS:
        for j in range(MT_WORDS):
            bits = (load_i32(words + 4 * j) & 0x80000000) | (load_i32(words + 4 * ((j + 1) % MT_WORDS)) & 0x7FFFFFFF)
            word = load_i32(words + 4 * ((j + 397) % MT_WORDS)) ^ (bits >> 1) ^ (0x9908B0DF * (bits & 1))
            store_i32(words + 4 * j, word)
        i = 0
    store_i64(state, i + 1)
    bits = load_i32(words + 4 * i) & 0xFFFFFFFF
    bits ^= bits >> 11
    bits ^= (bits << 7) & 0x9D2C5680
    bits ^= (bits << 15) & 0xEFC60000
    return bits ^ (bits >> 18)


@device
def next_float(state):
    """In [0, 1), as uniform_real_distribution<float>: a / 2^32 of the next output, rounded."""
    return min(np.float32(next_bits(state)) / np.float32(4294967296.0), np.float32(BELOW_1_F32))


@device
def next_double(state):
    """In [0, 1), as uniform_real_distribution<double>: (a + b * 2^32) / 2^64 of the next two outputs."""
    low = next_bits(state)
    return min((low + next_bits(state) * 4294967296.0) / 18446744073709551616.0, BELOW_1)
