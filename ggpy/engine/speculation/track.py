"""What a request's drafts have brought and cost so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ggpy.engine.speculation.proposer import NOTHING, Proposal

INCOME = 0.01           # of a request's time that it may lose by drafts
FIRST_BALANCE = 0.5     # steps that it may lose before it has earned them
MOST_BALANCE = 4.0      # steps that it may lose of what good drafts have saved
MOST_REST = 256         # proposals of a kind that are passed over between tries that fail
HOPELESS = 0.02         # drafts less likely to be right are not looked at
MEMORY = 0.96           # a result of a request counts so much less with each that follows
LONG_MEMORY = 0.98      # the same of all requests' results
WEIGHT = 4.0            # how many tokens' results it takes to outweigh what is known of other requests
FIRST_RATES = {
    "ngram 1": 0.15, "ngram 2": 0.5, "ngram 4": 0.75, "ngram 8": 0.87, "ngram 16": 0.94, "ngram 32": 0.97,
    "ngram 64": 0.98, "draft": 0.85,
}
USUAL_RATE = 0.8        # of other kinds


@dataclass(slots=True)
class Rate:
    """How often drafts of one kind turn out right, as a multiple of their confidence."""

    n_expected: float = 0.0         # sum of the confidences of the drafts that were checked
    n_accepted: float = 0.0

    def saw(self, n_expected: float, n_accepted: float, memory: float) -> None:
        """Learn from drafts that were checked: the accepted ones and the first that was not."""
        self.n_expected = memory * self.n_expected + n_expected
        self.n_accepted = memory * self.n_accepted + n_accepted

    def value(self, prior: float) -> float:
        """The rate, near `prior` as long as little is known."""
        return (self.n_accepted + WEIGHT * prior) / (self.n_expected + WEIGHT)


@dataclass(slots=True)
class Rest:
    """Of a kind of proposals that does not pay: how many are passed over until it is tried again."""

    n_left: int = 0
    n_next: int = 2

    def double(self) -> None:
        self.n_left, self.n_next = self.n_next, min(MOST_REST, 2 * self.n_next)


@dataclass(slots=True)
class Track:
    """One request's account.

    The unit is the time that it takes to give the request one token without drafts. A request can only lose what it
    has: a small part of its own time, and what drafts have saved.
    """

    balance: float = FIRST_BALANCE
    rates: dict[str, Rate] = field(default_factory=dict)        # by kind
    rests: dict[str, Rest] = field(default_factory=dict)        # by kind
    proposal: Proposal = NOTHING        # of this step
    chances: list[float] = field(default_factory=list)          # of its first tokens: see chances_of
    is_try: bool = False                # made to learn, against what is known

    def earn(self, amount: float) -> None:
        self.balance = min(MOST_BALANCE, self.balance + amount)

    def may_try(self, kind: str) -> bool:
        """Whether a proposal of a kind that does not seem to pay is used all the same, which is ever less often."""
        rest = self.rests.setdefault(kind, Rest())
        if rest.n_left > 0:
            rest.n_left -= 1
            return False
        return True

    def learn(self, n_drafted: int, n_accepted: int, rates: dict[str, Rate]) -> None:
        """Take in how the first `n_drafted` tokens of the proposal did; `rates` are those of all requests."""
        proposal = self.proposal
        results: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])     # by kind: expected, accepted
        for i, confidence in enumerate(proposal.confidences[: min(n_drafted, n_accepted + 1)]):
            result = results[proposal.kind_at(i)]
            result[0] += confidence
            result[1] += i < n_accepted
        for kind, (n_expected, n_right) in results.items():
            self.rates.setdefault(kind, Rate()).saw(n_expected, n_right, MEMORY)
            rates.setdefault(kind, Rate()).saw(n_expected, n_right, LONG_MEMORY)
        kind = proposal.kind_at(0)
        if self.is_try and n_accepted < n_drafted:
            self.rests.setdefault(kind, Rest()).double()
        elif n_accepted:
            self.rests.pop(kind, None)

    def chances_of(self, proposal: Proposal, rates: dict[str, Rate]) -> list[float]:
        """For the first tokens of `proposal`, how likely each and all before it are right; not of hopeless ones."""
        chances, chance = [], 1.0
        kind, rate = "", 0.0
        for i, confidence in enumerate(proposal.confidences):
            if (kind_here := proposal.kind_at(i)) != kind:
                kind, rate = kind_here, self._rate_of(kind_here, rates)
            chance *= min(0.99, rate * confidence)
            chances.append(chance)
            if chance < HOPELESS:
                break
        return chances

    def _rate_of(self, kind: str, rates: dict[str, Rate]) -> float:
        """How often tokens of a kind are right: by this request, or else others (`rates`), or else at first."""
        rate = FIRST_RATES.get(kind, USUAL_RATE)
        for known in (rates.get(kind), self.rates.get(kind)):
            if known is not None:
                rate = known.value(rate)
        return rate
