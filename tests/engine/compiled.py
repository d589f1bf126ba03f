"""Running a sampler in tests: its choice, or the candidates that its chain leaves."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling import Sampler, SamplingMemory
from ggpy.engine.sampling.dry import NO_BREAKERS, Breakers
from ggpy.engine.sampling.memory import NO_TOKEN
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, ROW
from tests.engine.sampler_meaning import Candidates

Float32 = NDArray[np.float32]
Mask = NDArray[np.int32]
SELECTORS = ("draw", "mirostat_learn", "adaptive", "adaptive_learn")

_memory = SamplingMemory()


def sample(sampler: Sampler, logits: Float32, tokens: Sequence[int] = (), mask: Mask | None = None) -> int:
    """The token after `tokens`. Raises GgpyError if there is none."""
    [token] = _memory.choose(logits[None], [(0, sampler, tokens, mask)], len(logits))
    if token == NO_TOKEN:
        raise sampler.failure(len(tokens))
    return token


def candidates(p: SamplingParams, logits: Float32, tokens: Sequence[int] = (),
               breakers: Breakers = NO_BREAKERS, mask: Mask | None = None) -> Candidates:
    """What the chain of `p` leaves before the draw, put in order."""
    sampler = Sampler(p, breakers=breakers, is_masked=mask is not None)
    row, before = sampler.row(len(logits), tokens, mask), logits.copy()
    row[ROW.n_entries // 8] = sum(entry.kernel.split(".")[1] not in SELECTORS for entry in sampler._chain)
    _memory.choose(logits[None], [(0, sampler, tokens, mask)], len(logits))
    assert np.array_equal(logits, before), "the backend's own logits stay as they are"
    words = _memory._candidates[0]

    def array(field: str, ctype: Any) -> NDArray[Any]:
        address = int(words[getattr(CANDIDATES, field) // 8])
        n = int(words[CANDIDATES.n // 8])
        return np.array((ctype * n).from_address(address)) if address else np.arange(n)

    ids, values = array("ids", ctypes.c_int32), array("logits", ctypes.c_float)
    left = Candidates(ids.astype(np.intp), values.astype(np.float32))
    if words[CANDIDATES.keys // 8]:
        left.take(np.argsort(-array("keys", ctypes.c_float), kind="stable"))
    return left
