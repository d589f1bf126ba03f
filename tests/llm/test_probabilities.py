"""Probabilities of an answer's tokens, through the library."""

from collections.abc import Callable

import numpy as np
import pytest

from ggpy import LLM, ProbabilitySpec, SamplingParams
from ggpy.errors import RequestError

PARAMS = SamplingParams(temperature=1, seed=3, max_tokens=6, ignore_eos=True)


def test_an_answer_tells_how_probable_its_tokens_were(load: Callable[..., LLM]) -> None:
    """As NumPy finds from the logits; without being asked it tells nothing."""
    llm, prompt = load(), [1, 2, 3]
    answer = llm.generate(prompt, PARAMS, probabilities=ProbabilitySpec(n_top=3))
    logits = llm.logits([*prompt, *answer.tokens], "all")[len(prompt) - 1 : -1].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert [entry.token for entry in answer.probabilities] == answer.tokens
    for row, (token, logprob, top) in zip(expected, answer.probabilities, strict=True):
        assert logprob == pytest.approx(row[token], abs=1e-5)
        assert [p for _, p in top] == pytest.approx(np.sort(row)[::-1][:3].tolist(), abs=1e-5)
    silent = llm.generate(prompt, PARAMS)
    assert (silent.tokens, silent.probabilities) == (answer.tokens, ())


def test_what_is_no_spec_is_refused(load: Callable[..., LLM]) -> None:
    """With what was found."""
    with pytest.raises(RequestError, match="probabilities=5: expected a ProbabilitySpec"):
        load().generate("a", probabilities=5)       # type: ignore[arg-type]
