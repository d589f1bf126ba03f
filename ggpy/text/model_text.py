"""What turns text into a model's tokens and back: its tokenizer and chat template, which need no weights."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from ggpy.errors import ConfigError, TemplateError, shown
from ggpy.gguf import GGUFFile
from ggpy.text.builtin_templates import BUILTIN_TEMPLATES, jinja_source
from ggpy.text.chat import ChatOptions, ChatTemplate, file_templates
from ggpy.text.tokenizer import Tokenizer

RERANK_TEMPLATE = "tokenizer.chat_template.rerank"


class ModelText:
    """The tokenizer and the chat template of the model with this `metadata`.

    `chat_template`, Jinja source, compiled or a built-in name such as "chatml", takes the place of the file's. Raises
    TokenizerError if the metadata has no tokenizer that works, ConfigError or TemplateError if `chat_template` is none.
    """

    def __init__(self, metadata: Mapping[str, Any], chat_template: str | ChatTemplate | None = None) -> None:
        self.metadata = metadata
        self.tokenizer = Tokenizer.from_metadata(metadata)
        if chat_template is not None:
            self.chat_template = compiled(chat_template, self.tokenizer)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], chat_template: str | ChatTemplate | None = None) -> Self:
        """That of the model in a GGUF file, of which only the metadata are read. Raises GGUFError too."""
        return cls(GGUFFile(path).metadata, chat_template)

    @property
    def has_chat_template(self) -> bool:
        """Whether the file has a chat template; without one, messages are written as ChatML.

        Raises TemplateError if what it has is not a string.
        """
        return "default" in file_templates(self.metadata)

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """How messages are written. Raises TemplateError if the template in the file does not compile."""
        return ChatTemplate.from_metadata(self.metadata, self.tokenizer)

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]) -> list[int]:
        """`messages` in the chat template, open for the assistant's answer, as token ids.

        Control tokens that the messages spell are text, but for the tags of an assistant's reasoning. Raises
        TemplateError if there are no messages, if one is malformed, or if the template cannot render them.
        """
        return self.chat_template.prompt(messages, self.tokenizer, **options).encode(self.tokenizer)


    def rerank_tokens(self, query: str, document: str) -> list[int]:
        """What a reranker reads: both texts in the file's template for that, or BOS query EOS SEP document EOS.

        Raises TemplateError if the template is not a string.
        """
        template = self.metadata.get(RERANK_TEMPLATE)
        if template is None:
            return joined(self.tokenizer, query, document)
        if not isinstance(template, str):
            raise TemplateError(f"{RERANK_TEMPLATE}: expected a string, found {shown(template)}")
        # in one pass: a query may spell "{document}"
        parts = re.split(r"(\{query\}|\{document\})", template)
        text = "".join({"{query}": query, "{document}": document}.get(part, part) for part in parts)
        return self.tokenizer.encode(text, add_special=False, parse_special=True)


def joined(tokenizer: Tokenizer, query: str, document: str) -> list[int]:
    """BOS query EOS SEP document EOS, as far as the tokenizer adds these."""
    first, second = (tokenizer.encode(text, add_special=False) for text in (query, document))
    bos = [tokenizer.bos_id] if tokenizer.add_bos else []
    eos = [tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id] if tokenizer.add_eos else []
    sep = [tokenizer.sep_id] if tokenizer.add_sep else []
    return [token for token in (*bos, *first, *eos, *sep, *second, *eos) if token is not None]


def compiled(template: str | ChatTemplate, tokenizer: Tokenizer) -> ChatTemplate:
    """`template`, compiled if it is Jinja source or a built-in name. Raises TemplateError if it does not compile."""
    if isinstance(template, ChatTemplate):
        return template
    source = jinja_source(template) if isinstance(template, str) else None
    if source is None:
        raise ConfigError(f"chat_template={template!r:.80}: expected Jinja source, a ChatTemplate or one of "
                          f"{', '.join(BUILTIN_TEMPLATES)}")
    return ChatTemplate.from_source(source, tokenizer, key="chat_template")
