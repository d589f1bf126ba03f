"""OpenAI's responses: the object of one, and the events by which it comes into being."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

from ggpy.engine.probabilities import TokenProbability
from ggpy.server.chat.core import ChatDelta, PreparedChat
from ggpy.server.errors import ErrorInfo
from ggpy.server.jobs.generation import Answer
from ggpy.server.jobs.probabilities import probability_objects
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.openai.responses_reasoning import SEALED, sealed
from ggpy.server.web.fields import Fields
from ggpy.text.tool_calls import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning

Item = dict[str, Any]
EventObject = dict[str, Any]

# fields of a request that its response repeats, with what stands there if they are absent
ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "prompt_cache_key": None, "safety_identifier": None, "tool_choice": "auto",
    "tools": [], "top_logprobs": 0, "truncation": "disabled", "user": None}


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class ResponseWriter:
    """Makes events of what the model says. Whole responses are made by it too, so that both are the same.

    Every event has a `sequence_number`, those of an item its place in the output, those of a text its place in the
    item. Reasoning, texts and calls are items in the order in which they came.
    """

    def __init__(self, model: LoadedModel, chat: PreparedChat, fields: Fields, *, has_progress: bool = False,
                 has_timings: bool = False) -> None:
        self._model = model
        self._has_progress = has_progress
        self._has_timings = has_timings
        self._seals_reasoning = SEALED in fields.texts("include")
        self._is_post = chat.job.probabilities is not None and chat.job.probabilities.after_sampling
        self._output: list[Item] = []
        self._is_open = False               # the last item of the output has not ended
        self._logprobs: list[TokenProbability] = []     # of text that is still held back
        self._n_events = 0
        text, reasoning = fields.nested("text"), fields.nested("reasoning")
        echoed = {name: fields.get(name) if name in fields else default for name, default in ECHOED.items()}
        self.response: dict[str, Any] = {
            "id": new_id("resp"), "object": "response", "created_at": int(time.time()), "completed_at": None,
            "status": "in_progress", "background": False, "error": None, "incomplete_details": None,
            "model": model.name, "output": [], "previous_response_id": None, "store": False, "service_tier": "default",
            "reasoning": {"effort": reasoning.get("effort"), "summary": None},
            "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity") or "medium"},
            "temperature": chat.job.params.temperature, "top_p": chat.job.params.top_p, "usage": None, **echoed}

    def begin(self) -> Iterator[EventObject]:
        """The first events."""
        yield self._lifecycle("response.created")
        yield self._lifecycle("response.in_progress")

    def add(self, delta: ChatDelta) -> Iterator[EventObject]:
        """The events of `delta`. The last of them has llama-server's timings and progress, if they are wanted."""
        events = list(self._added(delta))
        if self._has_progress and not delta.tokens and not delta.is_last and not events:
            events.append({**self._lifecycle("response.in_progress"),
                           "prompt_progress": delta.answer.progress(delta.n_read)})
        if events and (self._has_timings or delta.is_last):
            events[-1]["timings"] = delta.answer.timings()
        yield from events

    def _added(self, delta: ChatDelta) -> Iterator[EventObject]:
        self._logprobs += delta.probabilities
        for event in delta.events:
            yield from self._events_of(event)
        if delta.is_last:
            yield from self._end(delta)

    def fail(self, info: ErrorInfo) -> EventObject:
        """The last event if something went wrong behind the first."""
        self.response |= {"status": "failed", "error": {"code": "server_error", "message": info.message},
                          "output": self._output}
        return self._lifecycle("response.failed")

    def _events_of(self, event: Event) -> Iterator[EventObject]:
        match event:
            case Reasoning(text=text):
                yield from self._text("reasoning", text)
            case Content(text=text):
                yield from self._text("message", text)
            case CallBegin():
                yield from self._close()
                yield from self._open({"type": "function_call", "id": new_id("fc"), "status": "in_progress",
                                       "call_id": event.id, "name": event.name, "arguments": ""})
            case CallArguments(text=text):
                self._output[-1]["arguments"] += text
                yield self._of_item("response.function_call_arguments.delta", delta=text)
            case CallEnd(is_complete=is_complete):
                yield from self._close(is_complete=is_complete)

    def _text(self, kind: str, text: str) -> Iterator[EventObject]:
        """More text of an item of this kind, which begins unless the last one goes on."""
        if not self._is_open or self._output[-1]["type"] != kind:
            yield from self._close()
            yield from self._open(new_item(kind))
            yield self._of_text("response.content_part.added", part=new_part(kind))
        part = self._output[-1]["content"][0]
        part["text"] += text
        if kind == "reasoning":
            yield self._of_text("response.reasoning_text.delta", delta=text)
            return
        logprobs = self._told_logprobs()
        part["logprobs"] += logprobs
        yield self._of_text("response.output_text.delta", delta=text, logprobs=logprobs)

    def _told_logprobs(self) -> list[dict[str, Any]]:
        found, self._logprobs = self._logprobs, []
        return probability_objects(found, self._model.tokenizer, is_post=self._is_post)

    def _open(self, item: Item) -> Iterator[EventObject]:
        self._output.append(item)
        self._is_open = True
        shown = {**item, "content": []} if "content" in item else {**item}
        yield self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)

    def _close(self, *, is_complete: bool = True) -> Iterator[EventObject]:
        """End the last item, if it has not ended."""
        if not self._is_open:
            return
        self._is_open = False
        item = self._output[-1]
        item["status"] = "completed" if is_complete else "incomplete"
        if item["type"] == "function_call":
            yield self._of_item("response.function_call_arguments.done", name=item["name"],
                                arguments=item["arguments"])
        else:
            part = item["content"][0]
            if item["type"] == "message":
                yield self._of_text("response.output_text.done", text=part["text"], logprobs=part["logprobs"])
            else:
                item["encrypted_content"] = sealed(part["text"]) if self._seals_reasoning else ""
                yield self._of_text("response.reasoning_text.done", text=part["text"])
            yield self._of_text("response.content_part.done", part=part)
        self._logprobs = []
        yield self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _end(self, delta: ChatDelta) -> Iterator[EventObject]:
        """The end of the last item and of the response.

        The last event says `completed` also of an answer that was cut off if llama-server's own fields were asked for:
        its clients wait for that.
        """
        is_cut = delta.finish_reason == "length"
        yield from self._close(is_complete=not is_cut)
        self.response |= {
            "status": "incomplete" if is_cut else "completed", "completed_at": int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None, "output": self._output,
            "usage": usage(delta.answer, delta.n_reasoning)}
        is_told = is_cut and not self._has_timings and not self._has_progress
        yield self._lifecycle("response.incomplete" if is_told else "response.completed")

    def _lifecycle(self, kind: str) -> EventObject:
        return self._event(kind, response={**self.response})

    def _of_item(self, kind: str, **values: Any) -> EventObject:
        """An event of the last item."""
        return self._event(kind, item_id=self._output[-1]["id"], output_index=len(self._output) - 1, **values)

    def _of_text(self, kind: str, **values: Any) -> EventObject:
        """An event of the last item's text."""
        return self._of_item(kind, content_index=0, **values)

    def _event(self, kind: str, **values: Any) -> EventObject:
        event = {"type": kind, "sequence_number": self._n_events, **values}
        self._n_events += 1
        return event


def new_item(kind: str) -> Item:
    """A message, or reasoning, without text."""
    if kind == "message":
        return {"type": kind, "id": new_id("msg"), "status": "in_progress", "role": "assistant",
                "content": [new_part(kind)]}
    return {"type": kind, "id": new_id("rs"), "status": "in_progress", "summary": [], "encrypted_content": "",
            "content": [new_part(kind)]}


def new_part(kind: str) -> dict[str, Any]:
    """What a new item has as its content."""
    if kind == "message":
        return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": ""}


def usage(answer: Answer, n_reasoning: int) -> dict[str, Any]:
    """Tokens of a response, of which `n_reasoning` were reasoning."""
    n_prompt, n_cached, n_generated = answer.n_prompt, answer.n_cached, len(answer.tokens)
    return {"input_tokens": n_prompt, "output_tokens": n_generated, "total_tokens": n_prompt + n_generated,
            "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": n_prompt - n_cached},
            "output_tokens_details": {"reasoning_tokens": n_reasoning}}
