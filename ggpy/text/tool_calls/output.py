"""What readers have found: events with ids, and without the whitespace around tags."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import replace

from ggpy.text.tool_calls.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from ggpy.text.tool_calls.scanner import SPACES

_ALPHABET = string.ascii_lowercase + string.digits


def new_call_id() -> str:
    """A new id of a call: "call_" and eight letters or digits."""
    return "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(8))


def new_short_id() -> str:
    """A new id of nine letters or digits, as templates of Mistral demand it."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class _Text:
    """Text of one kind, without the whitespace beside tags."""

    def __init__(self) -> None:
        self.spaces = ""                # at the end of what has come, held back
        self.is_behind_tag = False

    def add(self, text: str) -> str:
        """Append `text`; returns what is now certain to be told."""
        if self.is_behind_tag:
            text = text.lstrip(SPACES)
            if not text:
                return ""
            self.is_behind_tag = False
        body = text.rstrip(SPACES)
        if not body:
            self.spaces += text
            return ""
        told, self.spaces = self.spaces + body, text[len(body):]
        return told

    def tag(self) -> None:
        self.spaces = ""
        self.is_behind_tag = True


class Output:
    """Collects the events of an answer.

    Whitespace between the tags of reasoning and calls and the text around them belongs to the tags: it is dropped.
    Reasoning is told as such, and, if it is `in_content`, with its tags as content.
    """

    def __init__(self, new_id: Callable[[], str], *, in_reasoning: bool = True, in_content: bool = False) -> None:
        self._new_id = new_id
        self._in_reasoning = in_reasoning
        self._in_content = in_content
        self._events: list[Event] = []
        self._content = _Text()
        self._reasoning = _Text()
        self._ids: set[str] = set()
        self.is_in_call = False         # a call has begun and not ended
        self.is_in_reasoning = False

    @property
    def n_calls(self) -> int:
        """Calls that have begun."""
        return len(self._ids)

    def events(self) -> list[Event]:
        """What has come since the last time."""
        events, self._events = self._events, []
        return events

    def content(self, text: str) -> None:
        """Some text for the user."""
        text = self._content.add(text)
        if text:
            self._tell(Content(text))

    def begin_reasoning(self, tag: str = "") -> None:
        """What opens reasoning, as the model wrote it."""
        self._tag_of_reasoning(tag)
        self.is_in_reasoning = True

    def reasoning(self, text: str) -> None:
        """Some reasoning."""
        told = self._reasoning.add(text) if self._in_reasoning else ""
        if told:
            self._tell(Reasoning(told))
        if self._in_content:
            self.content(text)

    def end_reasoning(self, tag: str = "") -> None:
        """What closes reasoning, as the model wrote it."""
        self._tag_of_reasoning(tag)
        self.is_in_reasoning = False

    def _tag_of_reasoning(self, tag: str) -> None:
        self._reasoning.tag()
        if self._in_content:
            self.content(tag)
        else:
            self._content.tag()

    def begin(self, name: str, call_id: str | None = None) -> None:
        """A call. `call_id` is the model's own id of it, if it wrote one."""
        self._content.tag()
        while not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._events.append(CallBegin(len(self._ids), call_id, name))
        self._ids.add(call_id)
        self.is_in_call = True

    def arguments(self, text: str) -> None:
        """Some of the arguments of the call that has begun."""
        if text:
            self._tell(CallArguments(len(self._ids) - 1, text))

    def end(self, is_complete: bool = True) -> None:
        """The end of the call that has begun."""
        self._events.append(CallEnd(len(self._ids) - 1, is_complete))
        self.is_in_call = False

    def call(self, name: str, arguments: str, call_id: str | None = None) -> None:
        """A whole call."""
        self.begin(name, call_id)
        self.arguments(arguments)
        self.end()

    def finish(self) -> None:
        """The end of the answer: whitespace at the end of a text without calls is part of it."""
        if self._content.spaces and not self._ids:
            self._tell(Content(self._content.spaces))

    def _tell(self, event: Content | Reasoning | CallArguments) -> None:
        """Append `event`, to the last one if that is of its kind."""
        last = self._events[-1] if self._events else None
        if isinstance(last, Content | Reasoning | CallArguments) and type(last) is type(event):
            self._events[-1] = replace(last, text=last.text + event.text)
        else:
            self._events.append(event)
