"""Logits are the same bits however weights lie, threads share the work and prompts are cut."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy import LLM, SamplingParams
from tests.golden.data import Golden
from tests.golden.divergence import Float32
from tests.golden.measure import N_CTX, Measured

N_LONG = 300            # tokens of `long`: attention is split at 256
N_GREEDY = 4

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "weights packed": {"repack": "on"},
    "weights as in the file": {"repack": "off"},
    "one thread": {"n_threads": 1},
    "two threads": {"n_threads": 2},
    "three threads": {"n_threads": 3},
    "64 tokens at a time": {"max_batch_tokens": 64},
    "7 tokens at a time": {"max_batch_tokens": 7},
}

Results = tuple[Float32, Float32, list[int]]


@pytest.fixture(scope="module")
def plain(golden: Golden, llm: LLM) -> Results:
    """Results with the default settings."""
    return results(golden, llm)


def results(golden: Golden, llm: LLM) -> Results:
    """Logits (n, n_vocab) after every token of `code`, (1, n_vocab) after N_LONG of `long`, and a greedy answer."""
    code, long = golden.prompts["code"].ids, golden.prompts["long"].ids[:N_LONG]
    answer = llm.generate(code, SamplingParams(temperature=0, max_tokens=N_GREEDY))
    return llm.logits(code, "all"), llm.logits(long, "last"), answer.tokens


@pytest.mark.parametrize("variant", VARIANTS)
def test_settings_that_are_about_speed_leave_every_bit(
        variant: str, golden: Golden, gguf_path: Path, plain: Results) -> None:
    """Layout of weights, threads and chunks of a prompt change no logit and no token."""
    with LLM(gguf_path, n_ctx=N_CTX, **VARIANTS[variant]) as llm:
        code, long, answer = results(golden, llm)
    assert np.array_equal(code, plain[0])
    assert np.array_equal(long, plain[1])
    assert answer == plain[2]


@pytest.mark.parametrize("repack", ["on", "off"])
def test_tokens_read_one_by_one_give_the_bits_of_the_whole_prompt(
        repack: Any, golden: Golden, gguf_path: Path, plain: Results) -> None:
    """A step per token, as when generating, equals one step for all."""
    with LLM(gguf_path, n_ctx=N_CTX, repack=repack, max_batch_tokens=1) as llm:
        assert np.array_equal(llm.logits(golden.prompts["code"].ids, "all"), plain[0])


def test_the_last_logits_are_those_of_all(golden: Golden, llm: LLM, default: Mapping[str, Measured]) -> None:
    """Asking for one position or for all cuts the prompt into other steps, and gives the same bits."""
    last = llm.logits(golden.prompts["long"].ids, "last")[0]
    assert np.array_equal(last, default["long"].tail_logits[-1])
