"""A session of an agent: what a history has in common with what was read and written before is reused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import anthropic
import openai
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))      # bench is no part of an installed ggpy

from bench.agent_session import Agent, AnthropicAgent, OpenAIAgent, Recorder, replay, scripted, session
from tests.server.conftest import Served


@pytest.fixture
def recorder(served: Served, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Of all that the scripted model does."""
    loaded = served.server.models.single.loaded
    assert loaded is not None
    found = Recorder(loaded)
    monkeypatch.setattr(loaded.client, "generate", found.wrapped(loaded.client.generate))
    return found


@pytest.fixture(params=["openai", "anthropic"])
def agent(request: pytest.FixtureRequest, openai_client: openai.OpenAI,
          anthropic_client: anthropic.Anthropic) -> Agent:
    """One whose prompts are short enough for a model that reads bytes."""
    if request.param == "openai":
        return OpenAIAgent(openai_client, "tiny", n_rules=16, max_tokens=400)
    return AnthropicAgent(anthropic_client, "tiny", n_rules=16, max_tokens=400)


def test_a_session_of_30_steps_is_read_once(agent: Agent, script: Callable[..., None], recorder: Recorder) -> None:
    """Every step reuses its longest true prefix, whatever way the model has to write JSON, and 90% in all.

    A step that only adds to the history goes on with all that was read and written before it.
    """
    moves = session()
    script(*scripted(moves))
    found = replay(agent, recorder, moves)
    print(found.table())
    assert [row.note for row in found.rows if row.note] == []
    assert [row.n_cached for row in found.rows[1:]] == [row.n_true for row in found.rows[1:]]
    assert {row.miss for row in found.rows if row.kind in ("edit", "fork")} == {"edited_history"}
    assert {row.miss for row in found.rows[1:] if row.kind not in ("edit", "fork")} == {"new_prefix"}
    assert found.share >= 0.9


def test_thoughts_between_calls_are_read_once(agent: Agent, script: Callable[..., None], recorder: Recorder) -> None:
    """Where the client sends them back and the template writes them, which it does as long as the user is silent."""
    moves = [move for move in session() if move.kind in ("task", "result")][:5]
    script(*(f"<think>\n {text[-9:]} \n\n</think>\n{text}" for text in scripted(moves)))
    found = replay(agent, recorder, moves)
    assert [row.note for row in found.rows] == [""] * 5
    assert [row.n_cached for row in found.rows[1:]] == [row.n_true for row in found.rows[1:]]


def test_an_answer_that_was_edited_is_read_anew(agent: Agent, script: Callable[..., None], recorder: Recorder) -> None:
    """The model sees what the client sent."""
    moves = session()[:3]
    script(*scripted(moves))
    agent.step(moves[0])
    agent.step(moves[1])
    message = agent.turns[1].reply.message
    if isinstance(message["content"], str):
        message["content"] = "I wrote it."
    else:
        message["content"][0].text = "I wrote it."
    agent.step(moves[2])
    prompt, _ = recorder.sequences[-1]
    text = recorder.model.tokenizer.decode(prompt)
    assert "I wrote it." in text
    assert "I read it." not in text
