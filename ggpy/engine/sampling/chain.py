"""From a request's parameters to the kernels of its samplers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling.dry import Breakers
from ggpy.engine.sampling.random import random_state
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.sample_candidates import (
    ADAPTIVE,
    BIAS,
    CALLS,
    DRAW,
    DRY,
    DYNAMIC,
    FEW,
    LARGEST,
    LEFT,
    MASK,
    MIN_P,
    MIROSTAT,
    PENALTIES,
    TEMPERATURE,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL,
    XTC,
)

MASKING = "sample_mask.mask"
KEEPING = "sample_left.left"
KEEP_THE_BEST = ("top_n_sigma", "top_k", "top_p", "min_p")
ALL_TOKENS = 1 << 40            # as the length of a window
LOG_FLOAT32_MAX = 88.7228391
SMALLEST = float(np.finfo(np.float32).tiny)


class Entry(NamedTuple):
    """A kernel with its argument block, and the memory that the block has addresses of."""

    kernel: str
    arguments: NDArray[np.int64]
    memory: tuple[NDArray[Any], ...] = ()


def uses_dry(p: SamplingParams) -> bool:
    """Whether DRY can change anything."""
    return "dry" in active_samplers(p) and not p.mirostat


def active_samplers(p: SamplingParams) -> list[str]:
    """The samplers of the chain that are not off, without those that cannot change its outcome."""
    off = {
        "penalties": (p.repeat_penalty, p.frequency_penalty, p.presence_penalty) == (1, 0, 0) or p.repeat_last_n == 0,
        "dry": p.dry_multiplier == 0 or p.dry_base < 1 or p.dry_penalty_last_n == 0,
        "top_n_sigma": p.top_n_sigma <= 0, "top_k": p.top_k == 0, "typ_p": p.typical_p >= 1, "top_p": p.top_p >= 1,
        "min_p": p.min_p <= 0, "xtc": p.xtc_probability <= 0 or p.xtc_threshold > 0.5,
        "temperature": p.temperature == 1 and p.dynatemp_range == 0, "adaptive_p": True,
    }
    names = [name for name in p.samplers if not off[name]]
    if p.temperature == 0 and p.dynatemp_range == 0 and "temperature" in names:
        names = names[: names.index("temperature") + 1]         # one candidate is left
        while len(names) > 1 and names[-2] in KEEP_THE_BEST:
            del names[-2]
    return names


def make_chain(p: SamplingParams, biases: Mapping[int, float], breakers: Breakers, seed: int, *,
               is_masked: bool = False, keeps_left: bool = False) -> list[Entry]:
    """The entries of a request's tape, in their order.

    With `is_masked` the first one is that of a mask; with `keeps_left` the last one copies what the others leave.
    """
    chain = [Entry(MASKING, argument_block(MASK, words=0))] if is_masked else []
    if biases:
        chain.append(_bias(biases))
    names = active_samplers(p)
    if p.mirostat:
        names = ["temperature"] if p.temperature != 1 else []
    for i, name in enumerate(names):
        chain.append(_sampler(name, p, breakers, seed, floor_p=p.min_p if names[i + 1 : i + 2] == ["min_p"] else 0.0))
    if p.mirostat or not chain or chain[-1].kernel != "sample_order.best":      # else nothing is left to chance
        chain += _selector(p, seed)
    return [*chain, Entry(KEEPING, argument_block(LEFT, n=0, ids=0, weights=0))] if keeps_left else chain


def kernels_of(p: SamplingParams, chain: list[Entry]) -> list[str]:
    """All kernels that running `chain` takes."""
    return [*(entry.kernel for entry in chain), *(f"sample_order.{name}" for name in methods_of(p, chain))]


def methods_of(p: SamplingParams, chain: list[Entry]) -> set[str]:
    """The methods that the kernels of `chain` may call, directly or not."""
    pending, found = [entry.kernel for entry in chain], set[str]()
    unneeded = set[str]()
    if not _orders_many(p):
        unneeded = {"find", "first"} if p.min_keep <= 1 else {"find"}
    while pending:
        new = set(CALLS.get(pending.pop(), "").split()) - found - unneeded
        found |= new
        pending += [f"sample_order.{name}" for name in new]
    return found


def _orders_many(p: SamplingParams) -> bool:
    """Whether a sampler needs the order of candidates that may be many."""
    if p.mirostat:
        return True
    for name in active_samplers(p):
        if name == "top_k":
            return p.top_k > FEW
        if (name in ("typ_p", "top_p", "xtc") or (name == "temperature" and p.dynatemp_range > 0)
                or (name == "min_p" and p.min_keep > 1)):
            return True
    return False


def _bias(biases: Mapping[int, float]) -> Entry:
    tokens = np.array(sorted(biases), np.int32)
    values = np.array([_float32(biases[token]) for token in sorted(biases)], np.float32)
    return Entry("sample_penalties.bias", argument_block(
        BIAS, tokens=tokens.ctypes.data, biases=values.ctypes.data, n=len(tokens)), (tokens, values))


def _sampler(name: str, p: SamplingParams, breakers: Breakers, seed: int, floor_p: float) -> Entry:
    """The entry of sampler `name`; `floor_p` is the p of a min_p that comes next, or 0."""
    match name:
        case "penalties":
            return Entry("sample_penalties.penalties", argument_block(
                PENALTIES, last_n=_length(p.repeat_last_n), repeat=_float32(p.repeat_penalty),
                frequency=_float32(p.frequency_penalty), presence=_float32(p.presence_penalty)))
        case "dry":
            return _dry(p, breakers)
        case "top_n_sigma":
            return Entry("sample_cuts.top_n_sigma", argument_block(TOP_N_SIGMA, n=_float32(p.top_n_sigma)))
        case "top_k":
            return Entry("sample_cuts.top_k", argument_block(TOP_K, k=p.top_k))
        case "typ_p":       # more than p: at least the next number
            return Entry("sample_cuts.typical", argument_block(
                TYPICAL, p=_float64(math.nextafter(p.typical_p, 2)), min_keep=p.min_keep))
        case "top_p":
            has_floor = floor_p > 0 and p.min_keep <= 1
            return Entry("sample_cuts.top_p", argument_block(
                TOP_P, p=_float64(p.top_p), min_keep=p.min_keep, has_floor=int(has_floor),
                log_floor=math.log(floor_p) if has_floor else 0.0))
        case "min_p":
            return Entry("sample_cuts.min_p", argument_block(MIN_P, log_p=math.log(p.min_p), min_keep=p.min_keep))
        case "xtc":
            random = random_state(seed)
            return Entry("sample_cuts.xtc", argument_block(
                XTC, random=random.ctypes.data, probability=float(p.xtc_probability), threshold=float(p.xtc_threshold),
                min_keep=p.min_keep), (random,))
        case _:
            assert name == "temperature", name
            return _temperature(p)


def _temperature(p: SamplingParams) -> Entry:
    if p.dynatemp_range > 0 and not p.mirostat:
        return Entry("sample_temperature.dynamic", argument_block(
            DYNAMIC, low=_float64(max(0.0, p.temperature - p.dynatemp_range)),
            high=_float64(min(p.temperature + p.dynatemp_range, LARGEST)), exponent=_float64(p.dynatemp_exponent)))
    if p.temperature == 0:
        return Entry("sample_order.best", np.empty(0, np.int64))
    return Entry("sample_temperature.fixed", argument_block(
        TEMPERATURE, value=max(_float32(p.temperature), SMALLEST)))


def _dry(p: SamplingParams, breakers: Breakers) -> Entry:
    starts, tails = breakers
    max_exponent = int(LOG_FLOAT32_MAX / math.log(p.dry_base)) if p.dry_base > 1.000001 else ALL_TOKENS
    return Entry("sample_dry.dry", argument_block(
        DRY, last_n=_length(p.dry_penalty_last_n), multiplier=_float64(p.dry_multiplier), base=_float64(p.dry_base),
        allowed_length=p.dry_allowed_length, max_exponent=max_exponent, starts=starts.ctypes.data,
        n_starts=len(starts), tails=tails.ctypes.data), (starts, tails))


def _selector(p: SamplingParams, seed: int) -> list[Entry]:
    """What ends the chain."""
    random = random_state(seed)
    is_discrete = bool(p.mirostat) or "adaptive_p" in p.samplers
    draw = Entry("sample_draws.draw", argument_block(DRAW, random=random.ctypes.data, needs_two=int(is_discrete)),
                 (random,))
    if p.mirostat:
        state = argument_block(MIROSTAT, mu=_float64(2 * p.mirostat_tau), tau=_float64(p.mirostat_tau),
                               eta=_float64(p.mirostat_eta))
        return [Entry(f"sample_draws.mirostat_{p.mirostat}", state), draw,
                Entry("sample_draws.mirostat_learn", state)]
    if is_discrete and p.adaptive_target >= 0:
        state = argument_block(
            ADAPTIVE, target=_float64(p.adaptive_target), decay=_float64(p.adaptive_decay),
            weighted_sum=_float64(p.adaptive_target / (1 - p.adaptive_decay)),
            total_weight=_float64(1 / (1 - p.adaptive_decay)))
        return [Entry("sample_draws.adaptive", state), draw, Entry("sample_draws.adaptive_learn", state)]
    return [draw]


def window_length(p: SamplingParams) -> int:
    """How many of the last tokens the samplers look at."""
    names = [] if p.mirostat else active_samplers(p)
    return max(_length(p.repeat_last_n) if "penalties" in names else 0,
               _length(p.dry_penalty_last_n) if "dry" in names else 0)


def _length(n: int | None) -> int:
    return ALL_TOKENS if n is None else min(n, ALL_TOKENS)


def _float32(x: float) -> float:
    """`x` as near as a finite float32 comes to it; -inf stays."""
    return x if x == -math.inf else min(max(float(x), -LARGEST), LARGEST)


def _float64(x: float) -> int:
    """The bits of a float64, as a field of an argument block."""
    return int(np.float64(x).view(np.int64))
