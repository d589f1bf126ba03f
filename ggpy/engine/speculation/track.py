"""What a request's drafts have brought and cost so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ggpy.engine.speculation.config import ProposerName
from ggpy.engine.speculation.proposer import NOTHING, Kind, Proposal

INCOME = 0.01           # of a request's time that it may lose by drafts
FREE_PROPOSING = 0.005  # of a step's time that asking for proposals may take uncharged, or it would use up the income
FIRST_BALANCE = 0.5     # steps that it may lose before it has earned them
MOST_BALANCE = 4.0      # steps that it may lose of what good drafts have saved
MOST_REST = 256         # proposals of a kind that are passed over between tries that fail
HOPELESS = 0.02         # drafts less likely to be right are not looked at
MEMORY = 0.96           # a result of a request counts so much less with each that follows
LONG_MEMORY = 0.98      # the same of all requests' results
WEIGHT = 4.0            # how many tokens' results it takes to outweigh what is known of other requests
# how often tokens are right before anything is known; of several, where 1 token agrees, 2, 4 and so on, or even more.
# Those of "ngram" are a little below what the edits and chats of bench/speculation.py show for Qwen 2.5 0.5B, the
# others are estimates
FIRST_RATES: dict[ProposerName, tuple[float, ...]] = {
    "ngram": (0.15, 0.5, 0.75, 0.87, 0.94, 0.97, 0.98), "past": (0.8,), "draft": (0.85,),
}


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

    The unit is the time that it takes to give the request one token without drafts. What a request loses by drafts
    that turn out wrong is paid from its balance, which has three sources: FIRST_BALANCE, INCOME for each step, and what
    right drafts have saved; it is MOST_BALANCE at most. Being asked costs it FREE_PROPOSING of each step beside that,
    which is not charged.
    """

    balance: float = FIRST_BALANCE
    rates: dict[Kind, Rate] = field(default_factory=dict)
    rests: dict[Kind, Rest] = field(default_factory=dict)
    proposal: Proposal = NOTHING        # of this step
    chances: list[float] = field(default_factory=list)          # of its first tokens: see chances_of
    is_try: bool = False                # made to learn, against what is known

    def earn(self, amount: float) -> None:
        self.balance = min(MOST_BALANCE, self.balance + amount)

    def may_try(self, kind: Kind) -> bool:
        """Whether a proposal of a kind that does not seem to pay is used all the same, which is ever less often."""
        rest = self.rests.setdefault(kind, Rest())
        if rest.n_left > 0:
            rest.n_left -= 1
            return False
        return True

    def learn(self, n_drafted: int, n_accepted: int, rates: dict[Kind, Rate]) -> None:
        """Take in how the first `n_drafted` tokens of the proposal did; `rates` are those of all requests."""
        proposal = self.proposal
        results: defaultdict[Kind, list[float]] = defaultdict(lambda: [0.0, 0.0])        # expected, accepted
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

    def chances_of(self, proposal: Proposal, rates: dict[Kind, Rate]) -> list[float]:
        """For the first tokens of `proposal`, how likely each and all before it are right; not of hopeless ones."""
        chances, chance = [], 1.0
        kind: Kind | None = None
        rate = 0.0
        for i, confidence in enumerate(proposal.confidences):
            if (kind_here := proposal.kind_at(i)) != kind:
                kind, rate = kind_here, self._rate_of(kind_here, rates)
            chance *= min(0.99, rate * confidence)
            chances.append(chance)
            if chance < HOPELESS:
                break
        return chances

    def _rate_of(self, kind: Kind, rates: dict[Kind, Rate]) -> float:
        """How often tokens of a kind are right: by this request, or else others (`rates`), or else at first."""
        rate = first_rate(kind)
        for known in (rates.get(kind), self.rates.get(kind)):
            if known is not None:
                rate = known.value(rate)
        return rate


def first_rate(kind: Kind) -> float:
    """How often tokens of a kind are right before anything is known of it."""
    proposer, n_matching = kind
    known = FIRST_RATES[proposer]
    return known[min(len(known), max(1, n_matching.bit_length())) - 1]
