"""A conversation of more than 3,000 tokens with a real model: no turn reads again what was said before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ggpy import LLM, Completion, SamplingParams
from ggpy.text import ChatTemplate
from ggpy.tools import chat_file
from ggpy.tools.chat import Conversation

pytestmark = pytest.mark.slow

ASKED = 60          # tokens that a short question and the template around it may have
PASTED = ("README.md", "docs/chat.md", "docs/getting-started.md", "docs/models.md", "docs/sampling.md", "LICENSE")


def paste(name: str) -> str:
    """Half a thousand tokens of prose, tables and commands."""
    return (Path(__file__).parents[2] / name).read_text(encoding="utf-8")[:1900]


def answer(chat: Conversation, question: str) -> Completion:
    "".join(chat.ask(question))
    return chat.end()


def new_tokens(turn: Completion) -> int:
    return turn.n_prompt - turn.n_cached


@pytest.fixture
def llm(model_path: Callable[[str], Path]) -> LLM:
    return LLM(model_path("smollm2"), n_ctx=5000)


def conversation(llm: LLM) -> Conversation:
    params = SamplingParams(seed=1, max_tokens=48)
    return Conversation(llm, params, ChatTemplate.from_metadata(llm.metadata, llm.tokenizer), "Be brief.")


def test_every_turn_of_a_long_conversation_computes_only_what_is_new(llm: LLM, tmp_path: Path) -> None:
    """Also behind an answer that was stopped, /regen, /undo, and /save and /load; the answers' own tokens are known."""
    with llm:
        chat = conversation(llm)
        for name in PASTED:
            known = chat.n_used
            turn = answer(chat, f"{paste(name)}\n\nWhat is this?")
            assert known - 2 <= turn.n_cached <= known      # the last token was sampled, but is not yet computed
            assert new_tokens(turn) <= len(llm.tokenize(paste(name))) + ASKED
            assert new_tokens(answer(chat, "Say it in other words.")) <= ASKED
        assert chat.n_used > 3000

        stopped = chat.ask("Tell me a long story.")
        assert next(stopped)
        next(stopped)
        chat.stop()
        assert chat.end().finish_reason == "cancelled"
        assert new_tokens(answer(chat, "Go on.")) <= ASKED

        question = chat.undo()
        assert new_tokens(answer(chat, question)) == 1          # /regen
        chat.undo()
        chat.undo()
        assert new_tokens(answer(chat, "Something else: why?")) <= ASKED

        messages, system = list(chat.messages), chat.system
        chat_file.save(tmp_path / "chat.json", {"model": "", "system": system, "settings": {}, "messages": messages})
        chat.clear()
        assert chat.n_used == 0
        saved = chat_file.load(tmp_path / "chat.json")
        chat.replace(saved["messages"], saved["system"])
        turn = answer(chat, "And now?")
        assert turn.n_prompt > 3000
        assert new_tokens(turn) <= ASKED


def test_a_prompt_that_was_stopped_is_not_read_twice(llm: LLM) -> None:
    """What the steps before the stop have read is known when the question comes again."""
    with llm:
        chat = conversation(llm)
        question = "\n".join(map(paste, PASTED))
        chat.ask(question)
        core = llm._client._core
        assert core is not None
        while not any(request.num_computed >= 256 for request in core.scheduler.running):
            pass
        chat.stop()
        assert chat.end().tokens == []
        chat.join()
        assert chat.messages == []
        turn = answer(chat, question)
        assert turn.n_prompt > 2500
        assert turn.n_cached >= 256
