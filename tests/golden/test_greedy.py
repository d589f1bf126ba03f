"""Greedy answers are llama.cpp's wherever its choice was clear."""

from collections.abc import Mapping

import numpy as np
import pytest

from ggpy import LLM, SamplingParams
from tests.golden.data import PROMPTS, Golden
from tests.golden.measure import Measured


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_have_llama_cpps_tokens(name: str, golden: Golden, llm: LLM) -> None:
    """Text with control tokens in it becomes the ids that all other results start from."""
    prompt = golden.prompts[name]
    assert llm.tokenize(prompt.text, add_special=True, parse_special=True) == prompt.ids


@pytest.mark.parametrize("name", PROMPTS)
def test_llama_cpps_choices_are_nearly_the_best(name: str, golden: Golden, default: Mapping[str, Measured]) -> None:
    """Given llama.cpp's own answer so far, its next token is our best one or close to it, at every step."""
    assert default[name].greedy_gaps.max() <= golden.greedy_tolerance


@pytest.mark.parametrize("name", PROMPTS)
def test_clear_choices_are_the_same(name: str, golden: Golden, llm: LLM) -> None:
    """From the start of the longest run of steps at which llama.cpp's margin was wide, we choose the same tokens."""
    prompt = golden.prompts[name]
    run = prompt.greedy.decisive_run(golden.greedy_tolerance)
    expected = prompt.greedy.ids[run]
    answer = llm.generate([*prompt.ids, *prompt.greedy.ids[:run.start]],
                          SamplingParams(temperature=0, max_tokens=len(expected)))
    assert answer.tokens == expected
    assert answer.text
    assert answer.text in prompt.greedy.text


@pytest.mark.parametrize("name", ["english", "code", "chat"])
def test_generated_tokens_are_the_best_of_the_logits(name: str, golden: Golden, llm: LLM) -> None:
    """Generating step by step chooses what the logits of the finished text say was best."""
    ids = golden.prompts[name].ids
    answer = llm.generate(ids, SamplingParams(temperature=0, max_tokens=12))
    logits = llm.logits([*ids, *answer.tokens], "all")
    assert answer.tokens == np.argmax(logits[len(ids) - 1: -1], axis=1).tolist()
