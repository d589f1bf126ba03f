"""Constraints of the library's answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy import LLM, ConstraintSpec, SamplingParams
from ggpy.errors import GrammarError, RequestError

SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer",
                                     "minimum": 1, "maximum": 14}}, "required": ["city", "days"],
    "additionalProperties": False}


def test_an_answer_is_what_the_grammar_allows(load: Callable[..., LLM]) -> None:
    """Whatever a random model would like to say; a stream too, and one without a constraint beside it."""
    llm = load()
    digits = ConstraintSpec("gbnf", 'root ::= "<" [0-9]{3} ">"')
    free = llm.stream([1, 2, 3], SamplingParams(temperature=0, max_tokens=8))
    answer = llm.generate([1, 2, 3], SamplingParams(temperature=1, seed=3), constraint=digits)
    assert answer.finish_reason == "stop"
    assert answer.text[0] + answer.text[-1] == "<>"
    assert len(answer.text) == 5
    assert answer.text[1:-1].isdecimal()
    assert "".join(llm.stream([1, 2, 3], SamplingParams(temperature=1, seed=3), constraint=digits)) == answer.text
    assert free.finish().text == llm.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=8)).text


def test_a_broken_constraint_is_refused_at_once(load: Callable[..., LLM]) -> None:
    """With the place in it; the model serves others."""
    llm = load()
    with pytest.raises(GrammarError, match=r"\$.minimun: is no keyword of JSON schemas; did you mean 'minimum'\?"):
        llm.stream("a", constraint=ConstraintSpec("json_schema", '{"minimun": 1}'))
    with pytest.raises(RequestError, match="constraint='root': expected a ConstraintSpec"):
        llm.generate("a", constraint="root")            # type: ignore[arg-type]
    assert llm.generate("a", SamplingParams(max_tokens=1)).tokens


def test_a_real_model_answers_in_json(model_path: Callable[[str], Path]) -> None:
    """A chat's answer meets the schema."""
    with LLM(model_path("smollm2:135m")) as llm:
        question = [{"role": "user", "content": "How long shall I stay in Paris? Answer in JSON."}]
        for seed in range(3):
            answer = llm.chat(question, SamplingParams(seed=seed, max_tokens=100),
                              constraint=ConstraintSpec("json_schema", json.dumps(SCHEMA)))
            value = json.loads(answer.text)
            assert set(value) == {"city", "days"}
            assert 1 <= value["days"] <= 14
