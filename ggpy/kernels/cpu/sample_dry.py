"""DRY: a penalty on tokens that would go on with a repetition (after p-e-w's sampler of text-generation-webui).

What ends a repetition, the breakers, are two arrays of int32: `starts` (n_starts,) says for each token where in
`tails` its entry is, 0 for none. An entry is the number of ways in which a breaker that begins in the token goes on,
then for each its length and its tokens. Length 0 means that the token contains a whole breaker; it then stands first.
"""

import math

import numpy as np

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, DRY
from ggpy.kernels.cpu.sample_order import own_logits
from ggpy.kernels.cpu.sample_penalties import copy_window, replace_by_places
from ggpy.kernels.cpu.sample_simd import load_f64
from ggpy.kernels.cpu.simd import load_f32, load_i32, load_i64, store_f32, store_i32, store_i64


@device
def entry_of(args, token):
    """Address of the entry of `token`, 0 for none."""
    is_known = 0 <= token < load_i64(args + DRY.n_starts)
    start = load_i32(load_i64(args + DRY.starts) + 4 * token) if is_known else 0
    return load_i64(args + DRY.tails) + 4 * start if start != 0 else 0


@device
def tokens_after_breaker(args, window, n):
    """How many tokens follow the last breaker in the window; all of them if there is none."""
    for n_after in range(n):
        at = window + 4 * (n - 1 - n_after)
        entry, longest = entry_of(args, load_i32(at)), -1
        n_tails = load_i32(entry) if entry != 0 else 0
        for _ in range(n_tails):
            length, matching = load_i32(entry + 4), 0
            while matching < min(length, n_after) and load_i32(entry + 8 + 4 * matching) == load_i32(
                    at + 4 + 4 * matching):
                matching += 1
            if matching == length:
                longest = max(longest, length)
            entry += 4 + 4 * length
        if longest >= 0:
            return n_after - longest
    return n


@device
def measure_copies(window, n, lengths):
    """lengths[i], i > 0: for how many tokens the text that ends i tokens before the end is a copy of the end itself.

    The Z function of the reversed window: what is known of a longer copy is not compared again.
    """
    last, left, right = window + 4 * (n - 1), 0, 0
    for i in range(1, n):
        k = min(right - i, load_i32(lengths + 4 * (i - left))) if i < right else 0
        while i + k < n and load_i32(last - 4 * k) == load_i32(last - 4 * (i + k)):
            k += 1
        store_i32(lengths + 4 * i, k)
        if i + k > right:
            left, right = i, i + k


@kernel
def dry(args, candidates, how, unused):
    """Takes multiplier * base^(n - allowed_length) off the logit of each token that would make a repetition of n tokens
    longer, if n is at least `allowed_length`. Breakers themselves stay as they are."""
    allowed = load_i64(args + DRY.allowed_length)
    places, n = copy_window(candidates, load_i64(args + DRY.last_n))
    window = load_i64(candidates + CANDIDATES.window) + 4 * (load_i64(candidates + CANDIDATES.n_window) - n)
    copies = places + 4 * n
    if n <= allowed:
        return
    longest = tokens_after_breaker(args, window, n)
    if longest < allowed:
        return
    longest = min(longest, allowed + load_i64(args + DRY.max_exponent))
    logits, lengths = own_logits(candidates), load_i64(candidates + CANDIDATES.weights)
    store_i64(candidates + CANDIDATES.is_sorted, 0)
    replace_by_places(candidates, places, n)
    measure_copies(window, n, copies)
    for i in range(1, n):                   # the copy that ends i tokens before the end goes on with token n - i
        store_i32(lengths + 4 * max(load_i32(places + 4 * (n - i)), 0), 0)
    for i in range(1, n):
        place = load_i32(places + 4 * (n - i))
        if place >= 0:
            length = lengths + 4 * place
            store_i32(length, max(load_i32(length), min(load_i32(copies + 4 * i), longest)))
    for i in range(1, n):
        place, entry = load_i32(places + 4 * (n - i)), entry_of(args, load_i32(window + 4 * (n - i)))
        if place >= 0 and load_i32(lengths + 4 * place) >= allowed and (entry == 0 or load_i32(entry + 4) != 0):
            exponent = load_i32(lengths + 4 * place) - allowed
            penalty = load_f64(args + DRY.multiplier) * math.pow(load_f64(args + DRY.base), exponent * 1.0)
            store_f32(logits + 4 * place, load_f32(logits + 4 * place) - np.float32(penalty))
            store_i32(lengths + 4 * place, -1)
