"""What Anthropic's clients are answered: messages, the events of a stream, and errors."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ggpy.engine.prefix_tree import MissCause
from ggpy.server.chat.arguments import read_arguments
from ggpy.server.errors import ErrorInfo
from ggpy.server.web import sse
from ggpy.text.tool_calls import CallArguments, CallBegin, Content, Reasoning, ToolCall
from ggpy.text.tool_calls.events import Event

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

SIGNATURE = ""      # of reasoning: nobody checks it
ERROR_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
               404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
               504: "timeout_error"}


def new_message_id() -> str:
    return f"msg_{secrets.token_hex(12)}"


def error_body(info: ErrorInfo) -> dict[str, Any]:
    """Anthropic's object, with the members beside it that llama-server's has."""
    kind = ERROR_TYPES.get(info.status, "api_error")
    error = {"type": kind, "message": info.message, "code": info.status, **info.details}
    return {"type": "error", "error": error, "request_id": f"req_{secrets.token_hex(12)}"}


def error_frame(info: ErrorInfo) -> bytes:
    """An error behind the first event."""
    return sse.frame(error_body(info), "error")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request. Those of the prompt are read from the cache, stored there for later, or neither."""

    n_prompt: int
    n_cached: int
    n_stored: int = 0
    n_generated: int = 0
    cache_miss: MissCause | None = None     # why no more was read from the cache; None: not yet known
    n_stored_1h: int = 0        # of those that are stored, for an hour; the others for 5 minutes

    def object(self) -> dict[str, Any]:
        """Anthropic's object; `cache_miss` is a member beside its own."""
        found: dict[str, Any] = {
            "input_tokens": self.n_prompt - self.n_cached - self.n_stored,
            "cache_creation_input_tokens": self.n_stored, "cache_read_input_tokens": self.n_cached,
            "cache_creation": {"ephemeral_5m_input_tokens": self.n_stored - self.n_stored_1h,
                               "ephemeral_1h_input_tokens": self.n_stored_1h},
            "output_tokens": self.n_generated}
        return found if self.cache_miss is None else {**found, "cache_miss": self.cache_miss}

    def delta_object(self) -> dict[str, Any]:
        """The same at the end of a stream, which does not say for how long anything is stored."""
        return {name: value for name, value in self.object().items() if name != "cache_creation"}


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an answer ended."""

    reason: StopReason
    stop_sequence: str | None = None

    def object(self) -> dict[str, Any]:
        return {"stop_reason": self.reason, "stop_sequence": self.stop_sequence}


def message_object(message_id: str, model: str, content: list[dict[str, Any]], ending: Ending | None,
                   usage: Usage) -> dict[str, Any]:
    """A message; `ending` is None while it is being written."""
    fields = {"stop_reason": None, "stop_sequence": None} if ending is None else ending.object()
    return {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": content, **fields,
            "usage": usage.object()}


def content_blocks(reasoning: str, content: str, calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """The blocks of a whole answer, one at least."""
    blocks: list[dict[str, Any]] = []
    if reasoning:
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
    if content:
        blocks.append({"type": "text", "text": content})
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name,
                "input": read_arguments(call.arguments)} for call in calls]
    return blocks or [{"type": "text", "text": ""}]


class EventWriter:
    """Writes the events of one stream. Blocks follow one another; each ends before the next begins."""

    def __init__(self, message_id: str, model: str) -> None:
        self._id, self._model = message_id, model
        self._index = -1
        self._kind: str | None = None       # of the block that is open

    def start(self, usage: Usage) -> bytes:
        """The first event."""
        message = message_object(self._id, self._model, [], None, usage)
        return sse.frame({"type": "message_start", "message": message}, "message_start")

    def write(self, event: Event) -> bytes:
        """What tells of a piece of the answer; b"" if nothing does."""
        match event:
            case Reasoning(text):
                return self._delta("thinking", {"thinking": "", "signature": SIGNATURE},
                                   {"type": "thinking_delta", "thinking": text})
            case Content(text):
                return self._delta("text", {"text": ""}, {"type": "text_delta", "text": text})
            case CallBegin(_, call_id, name):
                return self._close() + self._open("tool_use", {"id": call_id, "name": name, "input": {}})
            case CallArguments(_, text):
                return self._delta_event({"type": "input_json_delta", "partial_json": text})
        return b""

    def finish(self, ending: Ending, usage: Usage) -> bytes:
        """The last events. An answer without any block gets an empty one, for clients look at the first."""
        opened = self._open("text", {"text": ""}) if self._index < 0 else b""
        delta = {"type": "message_delta", "delta": ending.object(), "usage": usage.delta_object()}
        return (opened + self._close() + sse.frame(delta, "message_delta")
                + sse.frame({"type": "message_stop"}, "message_stop"))

    def _delta(self, kind: str, block: dict[str, Any], delta: dict[str, Any]) -> bytes:
        """A piece of a block of `kind`, which is begun unless it is open."""
        if self._kind == kind:
            return self._delta_event(delta)
        return self._close() + self._open(kind, block) + self._delta_event(delta)

    def _open(self, kind: str, block: dict[str, Any]) -> bytes:
        self._index += 1
        self._kind = kind
        return sse.frame({"type": "content_block_start", "index": self._index,
                          "content_block": {"type": kind, **block}}, "content_block_start")

    def _delta_event(self, delta: dict[str, Any]) -> bytes:
        return sse.frame({"type": "content_block_delta", "index": self._index, "delta": delta}, "content_block_delta")

    def _close(self) -> bytes:
        """End the block that is open, if one is; reasoning is signed first."""
        if self._kind is None:
            return b""
        is_signed = self._kind == "thinking"
        signature = self._delta_event({"type": "signature_delta", "signature": SIGNATURE}) if is_signed else b""
        self._kind = None
        return signature + sse.frame({"type": "content_block_stop", "index": self._index}, "content_block_stop")
