"""Render every conversation in every template with Transformers: writes expected.json.gz beside this file.

Where a template cannot write what a conversation has (capabilities.json, checked by hand), Transformers gets it in
the other form: text parts joined or texts wrapped, arguments of calls as object or as JSON.
Needs `pip install "transformers>=5.24"` (its renderer alone: no torch) and the models of MODELS, pulled.
"""

import copy
import datetime
import gzip
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.text import ChatTemplate, Tokenizer

transformers: Any = importlib.import_module("transformers.utils.chat_template_utils")

HERE = Path(__file__).parent
MODELS = ("smollm2:135m", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b")
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
NOW = datetime.datetime(2026, 3, 1, 9, 5, 7)


class FrozenDate(datetime.datetime):
    """Templates write today's date."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "FrozenDate":
        return cls(*NOW.timetuple()[:6])


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each template."""
    for path in sorted(HERE.glob("*.jinja")):
        yield path.stem, path.read_text(encoding="utf-8")
    for name in MODELS:
        metadata = GGUFFile(resolve_model(name)).metadata
        yield name, ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata)).source


def shaped(message: dict[str, Any], can: list[str]) -> dict[str, Any]:
    """`message` in the form that a template with the capabilities `can` writes; KeyError if there is none."""
    message = copy.deepcopy(message)
    calls = message.get("tool_calls", [])
    if calls and "needs_content" in can:
        message.setdefault("content", "")
    content = message.get("content")
    if isinstance(content, list) and "content_parts" not in can:
        message["content"] = "\n".join(part["text"] for part in content)
    elif isinstance(content, str) and "string_content" not in can:
        message["content"] = [{"type": "text", "text": content}]
    for call in calls:
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str) and "string_arguments" not in can and "object_arguments" in can:
            call["function"]["arguments"] = json.loads(arguments)
        elif isinstance(arguments, dict) and "object_arguments" not in can and "string_arguments" in can:
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return message


def render(source: str, conversation: dict[str, Any], can: list[str]) -> str | None:
    """Transformers' text; None where it raises, or the template has no form for what there is."""
    going_on = conversation.get("continue_final_message", False)
    try:
        messages = transformers._normalize_chat_messages([shaped(m, can) for m in conversation["messages"]])
        rendered, _ = transformers.render_jinja_template(
            [messages], tools=conversation.get("tools"), documents=conversation.get("documents"), chat_template=source,
            continue_final_message=going_on,
            add_generation_prompt=conversation.get("add_generation_prompt", True) and not going_on,
            **SPECIAL_TOKENS, **conversation.get("kwargs", {}),
        )
    except Exception:       # templates raise what they like
        return None
    return str(rendered[0])


def main() -> None:
    """Write the texts by template and conversation."""
    transformers.datetime = FrozenDate
    conversations = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    capabilities = json.loads((HERE / "capabilities.json").read_text(encoding="utf-8"))
    expected = {
        name: {title: render(source, conversation, capabilities[name]) for title, conversation in conversations.items()}
        for name, source in sources()
    }
    data = json.dumps(expected, ensure_ascii=False, separators=(",", ":")).encode()
    (HERE / "expected.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main()
