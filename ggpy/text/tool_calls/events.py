"""What an answer consists of, in the order in which the model writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Content:
    """Some of the text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Some of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of the tool `name`; the `index`-th of the answer, from 0. `id` is unique."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Some of the arguments of a call, which are the JSON text of an object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The arguments are complete, or, if not `is_complete`, cut off or broken."""

    index: int
    is_complete: bool = True


Event = Content | Reasoning | CallBegin | CallArguments | CallEnd


@dataclass(slots=True)
class ToolCall:
    """A call of a tool; `arguments` are JSON text."""

    id: str
    name: str
    arguments: str = ""
    is_complete: bool = False


@dataclass(slots=True)
class ParsedAnswer:
    """What a model answered."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    @classmethod
    def of(cls, events: Iterable[Event]) -> ParsedAnswer:
        """All `events` of an answer together."""
        answer = cls()
        for event in events:
            answer.add(event)
        return answer

    def add(self, event: Event) -> None:
        """Append the next event."""
        if isinstance(event, Content):
            self.content += event.text
        elif isinstance(event, Reasoning):
            self.reasoning += event.text
        elif isinstance(event, CallBegin):
            self.calls.append(ToolCall(event.id, event.name))
        elif isinstance(event, CallArguments):
            self.calls[event.index].arguments += event.text
        else:
            self.calls[event.index].is_complete = event.is_complete
