"""From a request's parameters to its samplers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling.candidates import Candidates
from ggpy.engine.sampling.cuts import min_p, top_k, top_n_sigma, top_p, typical, xtc
from ggpy.engine.sampling.draws import AdaptiveP, Draw, Mirostat1, Mirostat2, Random, Selector
from ggpy.engine.sampling.dry import Breakers, dry
from ggpy.engine.sampling.penalties import last, penalties
from ggpy.engine.sampling.temperature import dynamic_temperature, temperature

Step = Callable[[Candidates, Sequence[int]], None]      # changes the candidates, given all tokens so far

KEEP_THE_BEST = ("top_n_sigma", "top_k", "top_p", "min_p")


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


def make_steps(p: SamplingParams, breakers: Breakers, seed: int) -> list[Step]:
    """The chain up to the choice of a token."""
    if p.mirostat:
        return [lambda c, _: temperature(c, p.temperature)]
    names = active_samplers(p)
    return [_step(name, following, p, breakers, seed) for name, following in itertools.pairwise([*names, ""])]


def _step(name: str, following: str, p: SamplingParams, breakers: Breakers, seed: int) -> Step:
    match name:
        case "penalties":
            return lambda c, tokens: penalties(
                c, last(tokens, p.repeat_last_n), repeat=p.repeat_penalty, frequency=p.frequency_penalty,
                presence=p.presence_penalty)
        case "dry":
            return lambda c, tokens: dry(
                c, last(tokens, p.dry_penalty_last_n), multiplier=p.dry_multiplier, base=p.dry_base,
                allowed_length=p.dry_allowed_length, breakers=breakers)
        case "top_n_sigma":
            return lambda c, _: top_n_sigma(c, p.top_n_sigma)
        case "top_k":
            return lambda c, _: top_k(c, p.top_k)
        case "typ_p":
            return lambda c, _: typical(c, p.typical_p, p.min_keep)
        case "top_p":
            floor_p = p.min_p if following == "min_p" else 0
            return lambda c, _: top_p(c, p.top_p, p.min_keep, floor_p)
        case "min_p":
            return lambda c, _: min_p(c, p.min_p, p.min_keep)
        case "xtc":
            return _xtc_step(p, Random(seed))
        case _:
            assert name == "temperature", name
            if p.dynatemp_range > 0:
                return lambda c, _: dynamic_temperature(c, p.temperature, p.dynatemp_range, p.dynatemp_exponent)
            return lambda c, _: temperature(c, p.temperature)


def _xtc_step(p: SamplingParams, random: Random) -> Step:
    def step(candidates: Candidates, _: Sequence[int]) -> None:
        if len(candidates) >= 2 and random.float() <= np.float32(p.xtc_probability):
            xtc(candidates, p.xtc_threshold, p.min_keep)

    return step


def make_selector(p: SamplingParams, seed: int, n_vocab: int) -> Selector:
    """What ends the chain."""
    random = Random(seed)
    if p.mirostat == 1:
        return Mirostat1(random, p.mirostat_tau, p.mirostat_eta, n_vocab)
    if p.mirostat == 2:
        return Mirostat2(random, p.mirostat_tau, p.mirostat_eta)
    if "adaptive_p" in p.samplers:
        return AdaptiveP(random, p.adaptive_target, p.adaptive_decay)
    return Draw(random)
