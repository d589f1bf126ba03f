"""Templates with a name write what llama.cpp writes for that name.

tests/data/templates/builtin.json holds what its function llama_chat_apply_template gave, open for an answer.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ggpy.text import ChatTemplate
from ggpy.text.builtin_templates import BUILTIN_TEMPLATES

DATA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "templates" / "builtin.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", BUILTIN_TEMPLATES)
def test_the_text_is_llama_cpps(name: str) -> None:
    """A question, one behind a system message, and a conversation of several turns with blanks around its texts."""
    template = ChatTemplate(BUILTIN_TEMPLATES[name])
    texts = {title: template.render(messages) for title, messages in DATA["conversations"].items()}
    assert texts == DATA["texts"][name]


def test_quotes_and_braces_in_messages_are_text() -> None:
    """A message cannot become part of the template."""
    text = ChatTemplate(BUILTIN_TEMPLATES["llama3"]).render([{"role": "user", "content": "{{ 1 }} \"'"}])
    assert text == ("<|start_header_id|>user<|end_header_id|>\n\n{{ 1 }} \"'<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n")
