"""The random numbers of a sampler: a Mersenne twister in memory, which compiled code advances."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ggpy.kernels.cpu.sample_candidates import MT_WORDS


def random_state(seed: int) -> NDArray[np.int32]:
    """mt19937 as the C++ standard seeds it: an int64, how many of its words are used up, then the words."""
    return _seeded(seed).copy()


@lru_cache(maxsize=16)      # seeding takes NumPy a quarter of a millisecond
def _seeded(seed: int) -> NDArray[np.int32]:
    state = np.random.RandomState(seed).get_state(legacy=False)
    assert isinstance(state, dict)
    words = state["state"]["key"]
    return np.concatenate([np.array([MT_WORDS], np.int64).view(np.int32), np.asarray(words, np.uint32).view(np.int32)])
