"""Reads what Anthropic's clients ask for, as a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggpy.engine.config import MAX_COUNT
from ggpy.errors import GgpyError, RequestError
from ggpy.server.anthropic.breakpoints import Block, keeps_of, read_blocks
from ggpy.server.anthropic.messages import Message, read_messages, read_tools
from ggpy.server.chat.core import ChatRequest, PreparedChat
from ggpy.server.chat.messages import NO_MEDIA, find_media
from ggpy.server.chat.request import read_chat
from ggpy.server.context import Server
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web.fields import Fields

MAX_TOKENS = 4096           # of an answer, if a request does not say
REASONING_TOKENS = 10_000   # the same of reasoning that is asked for
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING = ("enabled", "disabled", "adaptive", "between_tools")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
# fields that mean something else here than in OpenAI's API, or that it has and Anthropic's has not
UNREAD = frozenset({"system", "stop_sequences", "thinking", "output_config", "metadata", "cache_control", "n", "n_cmpl",
                    "logprobs", "top_logprobs", "n_probs", "parallel_tool_calls", "return_progress"})


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """What is asked for."""

    chat: ChatRequest
    stop_sequences: tuple[str, ...]
    is_stream: bool
    is_warming: bool            # nothing is to be answered: the prompt is read for later requests
    blocks: Sequence[Block]     # some of which end what is to be kept for later requests

    @property
    def is_marked(self) -> bool:
        """Whether anything is to be kept."""
        return any(block.keep_s is not None for block in self.blocks)


def read_request(fields: Fields, server: Server, model: LoadedModel, *, is_official: bool) -> MessageRequest:
    """The request in a body. Fields of llama-server's that Anthropic does not know are read too.

    is_official: whether the client is one of Anthropic's API rather than of llama-server.
    Raises RequestError, and for pictures what `refuse_pictures` does.
    """
    messages, tools = read_messages(fields), read_tools(fields)
    refuse_pictures(messages, is_official=is_official)
    stop = tuple(text for text in fields.texts("stop_sequences") if text)
    body: dict[str, Any] = {name: value for name, value in fields.values.items() if name not in UNREAD}
    body |= {"messages": messages, "tools": tools or None, **read_choice(fields), **read_thinking(fields),
             **read_output(fields), "stop": list(stop) or fields.get("stop"),
             "max_tokens": fields.integer("max_tokens", default=MAX_TOKENS, least=0, most=MAX_COUNT)}
    if "metadata" in fields:
        fields.nested("metadata").text("user_id")
    return MessageRequest(read_chat(Fields(body), server, model), stop, fields.boolean("stream", default=False),
                          body["max_tokens"] == 0, read_blocks(fields))


def with_keeps(chat: PreparedChat, wanted: MessageRequest, model: LoadedModel) -> PreparedChat:
    """`chat`, of whose prompt the beginnings are kept that `wanted` wants to be."""
    keeps = keeps_of(wanted.blocks, chat.prompt.text, chat.job.tokens, model.token_lengths)
    return replace(chat, job=replace(chat.job, keeps=keeps))


def refuse_pictures(messages: list[Message], *, is_official: bool) -> None:
    """Raises an error if a message has a picture, which no model here sees.

    For llama-server that is an error of the server. Official clients send a request again that met one, so they are
    told that it was theirs.
    """
    if (found := find_media(messages)) is not None:
        raise (RequestError if is_official else GgpyError)(f"{found[1]} {NO_MEDIA}")


def read_choice(fields: Fields) -> dict[str, Any]:
    """Which tools have to be called, and whether several may be at once."""
    if "tool_choice" not in fields:
        return {"tool_choice": None}
    choice = fields.nested("tool_choice")
    kind = choice.choice("type", (*CHOICES, "tool"), "")
    found: dict[str, Any] = {
        "parallel_tool_calls": not choice.boolean("disable_parallel_tool_use", default=False)}
    if kind != "tool":
        return {**found, "tool_choice": CHOICES[kind]}
    name = choice.text("name")
    if name is None:
        raise choice.missing("name")
    return {**found, "tool_choice": {"type": "function", "name": name}}


def read_thinking(fields: Fields) -> dict[str, Any]:
    """Whether the model thinks before it answers, and for how long."""
    if "thinking" not in fields:
        return {}
    thinking = fields.nested("thinking")
    kind = thinking.choice("type", THINKING, "")
    if kind not in ("enabled", "disabled"):
        return {}
    variables = {"enable_thinking": kind == "enabled", **(fields.mapping("chat_template_kwargs") or {})}
    found: dict[str, Any] = {"chat_template_kwargs": variables}
    if kind == "enabled":
        found["thinking_budget_tokens"] = thinking.integer("budget_tokens", default=REASONING_TOKENS, least=0,
                                                           most=MAX_COUNT)
    return found


def read_output(fields: Fields) -> dict[str, Any]:
    """How hard the model shall try, and the JSON schema that its answer has to meet."""
    output = fields.nested("output_config")
    found: dict[str, Any] = {}
    if "effort" in output:
        found["reasoning_effort"] = output.choice("effort", EFFORTS, "")
    if "format" in output:
        wanted = output.nested("format")
        wanted.choice("type", ("json_schema",), "")
        schema = wanted.mapping("schema")
        if schema is None:
            raise wanted.missing("schema")
        found["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return found
