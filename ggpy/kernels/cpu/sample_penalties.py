"""Samplers that change the logits of single tokens, before others choose among them."""

import numpy as np

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import BIAS, CANDIDATES, PENALTIES
from ggpy.kernels.cpu.sample_order import own_logits
from ggpy.kernels.cpu.simd import load_f32, load_i32, load_i64, store_f32, store_i32, store_i64


@kernel
def bias(args, candidates, how, unused):
    """Adds `biases` to the logits of `tokens`, without repetitions, where the candidates still are all tokens."""
    logits = own_logits(candidates)
    for i in range(load_i64(args + BIAS.n)):
        token = load_i32(load_i64(args + BIAS.tokens) + 4 * i)
        if token < load_i64(candidates + CANDIDATES.n):
            logit = logits + 4 * token
            store_f32(logit, load_f32(logit) + load_f32(load_i64(args + BIAS.biases) + 4 * i))


@device
def replace_by_places(candidates, tokens, n):
    """Replaces int32 tokens (n,) by their places among the candidates, -1 for those that are none; returns `tokens`."""
    ids, places = load_i64(candidates + CANDIDATES.ids), load_i64(candidates + CANDIDATES.chances)
    n_vocab = load_i64(candidates + CANDIDATES.n_vocab)
    if ids != 0:
        for i in range(n_vocab):
            store_i32(places + 4 * i, -1)
        for i in range(load_i64(candidates + CANDIDATES.n)):
            store_i32(places + 4 * load_i32(ids + 4 * i), i)
    for i in range(n):
        token = load_i32(tokens + 4 * i)
        if not 0 <= token < n_vocab:
            store_i32(tokens + 4 * i, -1)
        elif ids != 0:
            store_i32(tokens + 4 * i, load_i32(places + 4 * token))


@device
def copy_window(candidates, last_n):
    """Copies the last tokens, `last_n` at most, to the work room behind the window: (address, how many)."""
    window, n_window = load_i64(candidates + CANDIDATES.window), load_i64(candidates + CANDIDATES.n_window)
    n = min(n_window, last_n)
    room = window + 4 * n_window
    for i in range(n):
        store_i32(room + 4 * i, load_i32(window + 4 * (n_window - n + i)))
    return room, n


@kernel
def penalties(args, candidates, how, unused):
    """Makes tokens of the window less likely: a logit above 0 is divided by `repeat`, another one multiplied by it,
    then `presence` and, for each time that the token occurs, `frequency` are taken off."""
    logits, counts = own_logits(candidates), load_i64(candidates + CANDIDATES.weights)
    store_i64(candidates + CANDIDATES.is_sorted, 0)
    places, n = copy_window(candidates, load_i64(args + PENALTIES.last_n))
    replace_by_places(candidates, places, n)
    for i in range(n):
        store_i32(counts + 4 * max(load_i32(places + 4 * i), 0), 0)
    for i in range(n):
        place = load_i32(places + 4 * i)
        if place >= 0:
            store_i32(counts + 4 * place, load_i32(counts + 4 * place) + 1)
    repeat = load_f32(args + PENALTIES.repeat)
    for i in range(n):
        place = load_i32(places + 4 * i)
        if place >= 0 and load_i32(counts + 4 * place) > 0:
            x, count = load_f32(logits + 4 * place), np.float32(load_i32(counts + 4 * place))
            x = x / repeat if x > np.float32(0.0) else x * repeat
            x -= count * load_f32(args + PENALTIES.frequency) + load_f32(args + PENALTIES.presence)
            store_f32(logits + 4 * place, x)
            store_i32(counts + 4 * place, 0)
