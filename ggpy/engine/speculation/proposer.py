"""What a proposer of tokens gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ggpy.engine.request import Request


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that are likely to follow those of a request."""

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    """For each of them, the proposer's own guess that it is right if those before it are."""
    kind: str = ""
    """Proposals of one kind turn out right about equally often, measured against their confidences."""


NOTHING = Proposal()


class Proposer(Protocol):
    """Guesses tokens. What it says of a request follows from what it has seen alone."""

    def propose(self, request: Request, n_max: int) -> Proposal:
        """At most `n_max` tokens, each below n_vocab, to follow `request.tokens`."""
        ...

    def finished(self, request: Request) -> None:
        """`request` gets no more tokens."""
        ...
