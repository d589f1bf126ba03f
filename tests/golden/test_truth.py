"""In float32 the engine gives what a plain float32 forward pass over dequantised weights gives."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from ggpy import LLM
from tests.golden.data import PROMPTS, Golden
from tests.golden.divergence import grouped, kl_divergence
from tests.golden.measure import N_CTX, Measured

MAX_KL = 1e-4           # the reference logits are stored as float16: they alone make 1e-5
MAX_DELTA = 0.1


@pytest.mark.parametrize("name", PROMPTS)
def test_last_logits_are_those_of_float32(name: str, golden: Golden, float32: Mapping[str, Measured]) -> None:
    """The distribution after the prompt is the reference's, and so is every single logit."""
    last = golden.prompts[name].f32_last
    assert float32[name].last_kl(last) <= MAX_KL
    assert float32[name].last_delta(last) <= MAX_DELTA


@pytest.mark.parametrize("name", PROMPTS)
def test_every_position_gives_the_next_token_its_probability(name: str, golden: Golden,
                                                             float32: Mapping[str, Measured]) -> None:
    """The log-probability of each token of the prompt, position 0 included, is the reference's."""
    deltas = float32[name].next_logprob - golden.prompts[name].f32_next_logprob
    assert np.abs(deltas).max() <= 1e-3


@pytest.mark.parametrize("name", PROMPTS)
def test_a_float16_cache_stays_close_to_float32(name: str, golden: Golden, float32_with_f16_cache: LLM) -> None:
    """Keys and values rounded to float16 cost float32 arithmetic little."""
    prompt = golden.prompts[name]
    logits = float32_with_f16_cache.logits(prompt.ids, "last")[0]
    log_q = grouped(logits, prompt.f32_last.ids)
    assert kl_divergence(prompt.f32_last.log_probs, log_q) <= MAX_KL
    assert np.abs(logits[prompt.f32_last.ids] - prompt.f32_last.logits).max() <= MAX_DELTA


@pytest.fixture(scope="module")
def float32_with_f16_cache(gguf_path: Path) -> Iterator[LLM]:
    with LLM(gguf_path, n_ctx=N_CTX, compute="f32") as llm:
        yield llm
