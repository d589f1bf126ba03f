"""Every template writes every conversation byte for byte as Transformers does; see tests/data/templates/README.md."""

import datetime
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.gguf import GGUFFile
from ggpy.text import ChatTemplate, Tokenizer, chat_environment

DATA = Path(__file__).parents[1] / "data" / "templates"
TEMPLATES = sorted(path.stem for path in DATA.glob("*.jinja"))
CONVERSATIONS: dict[str, dict[str, Any]] = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
CAPABILITIES: dict[str, list[str]] = json.loads((DATA / "capabilities.json").read_text(encoding="utf-8"))
SPECIAL_TOKENS: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, str | None]]:
    """Transformers' texts by template and conversation; None: the template has no form for it."""
    texts: dict[str, dict[str, str | None]] = json.loads(gzip.decompress((DATA / "expected.json.gz").read_bytes()))
    return texts


@pytest.fixture(autouse=True)
def _first_of_march(monkeypatch: pytest.MonkeyPatch) -> None:
    class FrozenDate(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "FrozenDate":
            return cls(2026, 3, 1, 9, 5, 7)

    monkeypatch.setattr(chat_environment, "datetime", FrozenDate)


def written(template: ChatTemplate, conversation: dict[str, Any]) -> str | None:
    """The text of `conversation`, None if there is none."""
    arguments = {name: value for name, value in conversation.items() if name != "kwargs"}
    try:
        return template.render(**arguments, chat_template_kwargs=conversation.get("kwargs"))
    except TemplateError:
        return None


def check(source: str, name: str, expected: dict[str, dict[str, str | None]]) -> None:
    """Compare all texts of a template."""
    template = ChatTemplate(source, **SPECIAL_TOKENS)
    found = {title: written(template, conversation) for title, conversation in CONVERSATIONS.items()}
    assert found == expected[name]
    able = [field for field in type(template.capabilities).__slots__ if getattr(template.capabilities, field)]
    assert sorted(able) == sorted(CAPABILITIES[name])


@pytest.mark.parametrize("name", TEMPLATES)
def test_family(name: str, expected: dict[str, dict[str, str | None]]) -> None:
    """A family's template, in the Jinja that it is usually written in."""
    check((DATA / f"{name}.jinja").read_text(encoding="utf-8"), name, expected)


@pytest.mark.parametrize(
    "name",
    ["smollm2:135m", *(pytest.param(name, marks=pytest.mark.slow)
                       for name in ("gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"))],
)
def test_model(name: str, expected: dict[str, dict[str, str | None]], model_path: Callable[[str], Path]) -> None:
    """The template inside a model's file, or ChatML where there is none."""
    metadata = GGUFFile(model_path(name)).metadata
    check(ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata)).source, name, expected)


def test_most_conversations_can_be_written(expected: dict[str, dict[str, str | None]]) -> None:
    """The texts are no list of failures."""
    texts = [text for by_title in expected.values() for text in by_title.values()]
    assert len(expected) >= len(TEMPLATES) + 4
    assert sum(text is not None for text in texts) > 0.8 * len(texts)
