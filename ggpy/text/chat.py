"""Chat templates: a conversation as the text that a model was trained on."""

import difflib
import functools
import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from ggpy.errors import TemplateError
from ggpy.text.chat_capabilities import Capabilities, probe
from ggpy.text.chat_messages import (
    PlainMessage,
    adapt,
    cut_continuation,
    mark_continuation,
    plain_mappings,
    plain_messages,
    plain_variables,
)
from ggpy.text.chat_prompt import ChatPrompt, ControlMask
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


class ChatOptions(TypedDict, total=False):
    """Options of rendering a conversation."""

    tools: Sequence[Mapping[str, Any]] | None       # functions that the model may call, as OpenAI's API has them
    documents: Sequence[Mapping[str, Any]] | None   # that the answer shall be based on: "title" and "text"
    chat_template_kwargs: Mapping[str, Any] | None  # variables of the template, such as {"enable_thinking": False}
    add_generation_prompt: bool         # open the assistant's answer behind the messages (default)
    continue_final_message: bool | str  # leave the last message open instead: its content, or the field so named


def check_options(function: str, given: Iterable[str], others: Mapping[str, str] | None = None) -> None:
    """Raises TypeError, as Python does for a keyword that `function` lacks, if a name that was `given` is no option.

    The error has the nearest option, or what `others` says of the name.
    """
    options = sorted(ChatOptions.__annotations__)
    for name in given:
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(options)}"
            hint = (others or {}).get(name, hint)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint}")


class ChatTemplate:
    """A compiled chat template.

    `variants` are templates for special cases, by name: `tool_use` is used when there are tools, `rag` when there are
    documents. `special_tokens` are variables of the template: `bos_token`, `eos_token`, `pad_token`, `unk_token`. `key`
    says in errors where the template comes from.
    Raises TemplateError, with line and reason, if `source` does not compile, or is too long to.
    """

    def __init__(self, source: str, *, variants: Mapping[str, str] | None = None, key: str = _KEY,
                 **special_tokens: str) -> None:
        from jinja2 import TemplateSyntaxError

        from ggpy.text.chat_environment import ChatEnvironment
        from ggpy.text.chat_limits import check_source

        self.source = source
        self.key = key
        self._special_tokens: dict[str, Any] = {**special_tokens}
        self.variants = {name: ChatTemplate(text, key=f"{key}.{name}", **self._special_tokens)
                         for name, text in (variants or {}).items()}
        try:
            environment = ChatEnvironment()
            check_source(environment, source, key)
            self._template = environment.from_string(source)
        except TemplateError:
            raise
        except TemplateSyntaxError as error:
            raise TemplateError(f"{key}, line {error.lineno}: {error.message}") from error
        except Exception as error:      # too deep for Jinja's parser or Python's
            raise TemplateError(f"{key}: the template does not compile: {error or type(error).__name__}") from error

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> "ChatTemplate":
        """The templates of a GGUF file, or ChatML, with a warning, if it has none."""
        variants = file_templates(metadata)
        default = variants.pop("default", None)
        if default is None:
            logger.warning("%s is missing: conversations are written as ChatML, which this model may not know", _KEY)
            default = CHATML
        return cls(default, variants=variants, **_special_tokens(tokenizer))

    @classmethod
    def from_source(cls, source: str, tokenizer: Tokenizer, *, key: str = _KEY) -> "ChatTemplate":
        """A template with the tokenizer's special tokens as variables."""
        return cls(source, variants=None, key=key, **_special_tokens(tokenizer))

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """What the template can write, found by rendering it with small conversations.

        Raises TemplateError if it takes more time or memory than it may.
        """
        from ggpy.text.chat_limits import LimitError

        def trial(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str | None:
            try:
                return self._run(messages, {"tools": tools, "documents": None, "add_generation_prompt": False})
            except TemplateError as error:
                if isinstance(error.__cause__, LimitError):     # no better with other messages
                    raise
                return None

        return probe(trial)

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]) -> str:
        """The text of `messages`, as Transformers writes it.

        A message has a `role` and a `content`, a text or a list of parts such as `{"type": "text", "text": "Hi"}`;
        what it has of `reasoning_content`, `tool_calls` and so on is the template's to write. What the template cannot
        take in one form it gets in the other: content as a string or as parts, arguments of calls as JSON or objects.
        Raises TemplateError if the messages are malformed and, with line and reason, if the template fails.
        """
        check_options("ChatTemplate.render", options)
        return self._render(messages, None, **options).text

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, **options: Unpack[ChatOptions]
    ) -> ChatPrompt:
        """As `render`, with the spans in which messages spell control tokens, which are encoded as text.

        Raises TemplateError too if there are no messages, or if the template leaves tools, calls or documents out.
        """
        check_options("ChatTemplate.prompt", options)
        return self._render(messages, tokenizer, **options)

    def plain(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]) -> list[PlainMessage]:
        """Copies of `messages` in the shape that the template can write; others may be put beside them.

        Raises TemplateError for one that is malformed or that it cannot write.
        """
        plain = plain_messages(messages)
        variant = self._variant(has_tools=bool(options.get("tools")), has_documents=bool(options.get("documents")))
        adapt(plain, variant.capabilities)
        return plain

    def _variant(self, *, has_tools: bool, has_documents: bool) -> "ChatTemplate":
        return self.variants.get("tool_use" if has_tools else "rag" if has_documents else "", self)

    def _render(
        self, messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer | None, *, add_generation_prompt: bool = True,
        continue_final_message: bool | str = False, tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None, chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        from ggpy.text.chat_limits import check_conversation

        variant = self._variant(has_tools=bool(tools), has_documents=bool(documents))
        plain = plain_messages(messages)
        if tokenizer is not None and not plain:
            raise TemplateError("messages: expected a message or more, found none")
        given = {"tools": plain_mappings(tools, "tools"), "documents": plain_mappings(documents, "documents")}
        check_conversation(plain, given)
        adapt(plain, variant.capabilities)
        variables = plain_variables(chat_template_kwargs)
        mask = None
        if tokenizer is not None:
            mask = ControlMask(tokenizer, variant.source, self._special_tokens, plain, given, variables)
            plain, given = [mask.hide_message(message) for message in plain], mask.hide(given)
        field = "content" if continue_final_message is True else continue_final_message or None
        start = mark_continuation(plain, field) if field else None
        is_opened = add_generation_prompt and not continue_final_message
        arguments = {**given, "add_generation_prompt": is_opened, **variables}
        text = variant._run_or_hint(plain, arguments)
        if tokenizer is not None:
            variant._check_written(text, plain, arguments)
        if start is not None:
            text = cut_continuation(text, start)
        return ChatPrompt(text) if mask is None else mask.reveal(text)

    def _run_or_hint(self, messages: list[PlainMessage], arguments: Mapping[str, Any]) -> str:
        try:
            return self._run(messages, arguments)
        except TemplateError as error:
            if self.capabilities.system_role or all(message["role"] != "system" for message in messages):
                raise
            hint = "the template takes no system message; put its text into the first message of the user"
            raise TemplateError(f"{error} ({hint})") from error

    def _check_written(self, text: str, messages: list[PlainMessage], arguments: Mapping[str, Any]) -> None:
        """Raises TemplateError if `text` is the same without the tools, documents or calls that there are."""
        without = {name: (messages, {**arguments, name: None}) for name in ("tools", "documents") if arguments[name]}
        if any(message.get("tool_calls") for message in messages):
            bare = [{key: value for key, value in message.items() if key != "tool_calls"} for message in messages]
            without["tool_calls"] = (bare, {**arguments})
        for name, trial in without.items():
            if getattr(self.capabilities, name, False):
                continue
            try:
                is_left_out = self._run(*trial) == text
            except TemplateError:       # it cannot do without them
                is_left_out = False
            if is_left_out:
                raise TemplateError(f"{name}: this model's template has no {name}, so that the model would not see "
                                    "them; leave them out, or take a model whose template writes them")

    def _run(self, messages: list[dict[str, Any]], arguments: Mapping[str, Any]) -> str:
        from ggpy.text.chat_limits import Budget, current_budget

        budget = current_budget.set(Budget(len(messages)))
        try:
            return self._template.render({"messages": messages, **self._special_tokens, **arguments})
        except Exception as error:
            line = _line_in_template(error)
            where = self.key if line is None else f"{self.key}, line {line}"
            raise TemplateError(f"{where}: {error or type(error).__name__}") from error
        finally:
            current_budget.reset(budget)


def file_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The templates of a GGUF file by name; "default" is the one for ordinary conversations, if it is not empty.

    Raises TemplateError if one is not a string.
    """
    sources = {}
    for key in metadata:
        if key == _KEY or key.startswith(_KEY + "."):
            source = metadata[key]
            if not isinstance(source, str):
                raise TemplateError(f"{key}: expected a string, found {type(source).__name__} {source!r:.40}")
            sources[key.removeprefix(_KEY).removeprefix(".")] = source
    default = sources.pop("", None) or sources.pop("default", None)
    return {**sources, "default": default} if default else sources


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
