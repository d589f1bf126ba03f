"""Probabilities of tokens as llama-server tells them."""

from __future__ import annotations

import math
from typing import Any

from ggpy.engine.probabilities import TokenProbability
from ggpy.text import Tokenizer

LOWEST = -3.4028234663852886e38      # of float32: the logarithm of 0, which JSON lacks


def probability_objects(found: list[TokenProbability], tokenizer: Tokenizer, *, is_post: bool) -> list[dict[str, Any]]:
    """`completion_probabilities`: of each token, and of those that could have come.

    With `is_post` they are probabilities after sampling, without those of 0, else logarithms.
    """
    return [{**probability_object(one.token, one.logprob, tokenizer, is_post=is_post),
             ("top_probs" if is_post else "top_logprobs"): [
                 probability_object(token, logprob, tokenizer, is_post=is_post) for token, logprob in one.top
                 if not is_post or math.exp(logprob) > 0]} for one in found]


def probability_object(token: int, logprob: float, tokenizer: Tokenizer, *, is_post: bool) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    value = {"prob": math.exp(logprob)} if is_post else {"logprob": max(logprob, LOWEST)}
    return {"id": token, "token": valid_text(data), "bytes": list(data), **value}


def valid_text(data: bytes) -> str:
    """The characters of `data` up to one that is not whole."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()
