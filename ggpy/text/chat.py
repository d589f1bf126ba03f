"""Chat templates: a conversation as the text that a model was trained on."""

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.errors import TemplateError
from ggpy.text.tokenizer import Tokenizer

logger = logging.getLogger("ggpy")

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_KEY = "tokenizer.chat_template"
_FILE_NAME = "<template>"       # what Jinja calls a template that comes from a string


class ChatTemplate:
    """A compiled chat template.

    `special_tokens` are the texts that templates may name: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    Raises TemplateError, with line and reason, if `source` does not compile.
    """

    def __init__(self, source: str, **special_tokens: str) -> None:
        from jinja2 import TemplateSyntaxError

        from ggpy.text.chat_environment import build_environment

        self.source = source
        self._special_tokens = special_tokens
        try:
            self._template = build_environment().from_string(source)
        except TemplateSyntaxError as error:
            raise TemplateError(f"{_KEY}, line {error.lineno}: {error.message}") from error
        except Exception as error:      # too deep for Jinja's parser or Python's
            raise TemplateError(f"{_KEY}: the template does not compile: {error or type(error).__name__}") from error

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> "ChatTemplate":
        """The template of a GGUF file; a file without one gets ChatML, and a warning says so."""
        source = metadata.get(_KEY)
        if source is None:
            logger.warning("%s is missing: conversations are written as ChatML, which this model may not know", _KEY)
            source = CHATML
        if not isinstance(source, str):
            raise TemplateError(f"{_KEY}: expected a string, found {type(source).__name__} {source!r:.40}")
        return cls(source, **_special_tokens(tokenizer))

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any,
    ) -> str:
        """The text of `messages`, open for the assistant's answer if `add_generation_prompt`.

        A message has a `role` and a `content` string. `variables` are handed to the template
        (`enable_thinking=False`, ...). Raises TemplateError, with line and reason, if the template fails.
        """
        arguments = {
            "messages": messages, "tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt,
            **self._special_tokens, **variables,
        }
        try:
            return self._template.render(arguments)
        except Exception as error:
            line = _line_in_template(error)
            where = _KEY if line is None else f"{_KEY}, line {line}"
            raise TemplateError(f"{where}: {error or type(error).__name__}") from error


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    ids = {
        "bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id, "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
    }
    return {
        name: "" if token_id is None else tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        for name, token_id in ids.items()
    }


def _line_in_template(error: Exception) -> int | None:
    """The innermost line of the template on the way to `error`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE_NAME]
    return lines[-1] if lines else None
