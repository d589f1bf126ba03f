"""What a proposer of tokens gives."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ggpy.engine.request import Request
from ggpy.engine.speculation.config import ProposerName

Kind = tuple[ProposerName, int]     # how many tokens agree, as a power of two; 0: that has no meaning


class Proposal(NamedTuple):     # a frozen dataclass takes three times as long to make, and each step makes many
    """Tokens that are likely to follow those of a request."""

    tokens: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    """For each of them, the proposer's own guess that it is right if those before it are."""
    proposer: ProposerName = "ngram"
    n_matching: int = 0
    """How many tokens agreed where the proposal comes from; 0: it does not come from text that agrees.

    Each of its tokens that is right makes the agreement longer by one, and the next token more likely to be right.
    """

    def kind_at(self, i: int) -> Kind:
        """The kind of its token `i`; those of one kind turn out right about equally often, measured by confidences."""
        return self.proposer, 1 << ((self.n_matching + i).bit_length() - 1) if self.n_matching else 0


NOTHING = Proposal()


class Proposer(Protocol):
    """Guesses tokens. What it says of a request follows from what it has seen alone."""

    def propose(self, request: Request, n_max: int) -> Proposal:
        """At most `n_max` tokens, each below n_vocab, to follow `request.tokens`."""
        ...

    def finished(self, request: Request) -> None:
        """`request` gets no more tokens."""
        ...
