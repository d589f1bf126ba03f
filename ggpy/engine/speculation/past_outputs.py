"""What followed the last tokens in answers that the engine gave before."""

from __future__ import annotations

from bisect import bisect_right

from ggpy.engine.request import Request
from ggpy.engine.speculation.ngram_index import NgramIndex, common_suffix
from ggpy.engine.speculation.proposer import NOTHING, Proposal

NGRAM = 3               # tokens that must agree
MOST_MATCHES = 32       # occurrences that are counted, the latest ones
LONGEST = 16            # longer agreement makes no difference
MIN_CONFIDENCE = 0.1    # of the whole guess; less probable tokens are not proposed


class PastOutputs:
    """Proposes the most frequent continuation of the longest match in past outputs, and how frequent it was.

    The idea, for agents that write nearly the same again and again, is that of suffix decoding (Oliaro et al.,
    "SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications", 2024, section 4). There a suffix tree
    holds the frequencies; here they are counted among the occurrences that an index of n-grams finds, which takes a
    tenth of the memory and lets outputs be forgotten.

    At most `max_tokens` tokens are kept; beyond them, the half of the outputs that was used longest ago goes. Nothing
    is proposed from the outputs of requests with another salt: how fast an answer is must not tell what others got.
    """

    def __init__(self, n_vocab: int, max_tokens: int, p_min: float = 0.0) -> None:
        self._n_vocab, self._max_tokens = n_vocab, max_tokens
        self._p_min = p_min
        self._clock = 0                         # counts uses
        self._fill([])

    @property
    def n_tokens(self) -> int:
        """Tokens that are kept, with the one that parts outputs behind each."""
        return len(self._index.tokens)

    def propose(self, request: Request, n_max: int) -> Proposal:
        """See Proposer."""
        ends, longest = self._longest_matches(request.tokens, request.salt)
        if not ends:
            return NOTHING
        proposed, confidences = self._vote(ends, n_max)
        if proposed:
            self._clock += 1
            self._used[self._output_at(ends[0])] = self._clock
        return Proposal(tuple(proposed), tuple(confidences), "past", longest)

    def _output_at(self, position: int) -> int:
        """Which output the token there belongs to."""
        return bisect_right(self._starts, position) - 1

    def _longest_matches(self, context: list[int], salt: int) -> tuple[list[int], int]:
        """Where the tokens end that agree with most of the end of `context`, latest first, and how many they are."""
        tokens, n = self._index.tokens, len(context)
        ends: list[int] = []
        longest = 0
        self._index.update()            # long outputs are taken in by parts; those that are in are of use already
        for end in self._index.matches(context, MOST_MATCHES):
            if longest and (end + 1 < longest or tokens[end + 1 - longest] != context[n - longest]):
                continue                # it is shorter
            if self._salts[self._output_at(end)] != salt:
                continue
            length = common_suffix(tokens, end + 1, context, n, LONGEST)
            if length > longest:
                longest, ends = length, []
            if length == longest:
                ends.append(end)
        return ends, longest

    def _vote(self, ends: list[int], n_max: int) -> tuple[list[int], list[float]]:
        """The continuation that most of the occurrences have, token by token, and the part of them that agrees."""
        tokens = self._index.tokens
        proposed: list[int] = []
        confidences: list[float] = []
        certainty = 1.0
        while len(ends) > 1 and len(proposed) < n_max:
            following = [tokens[end + 1] for end in ends]
            token = max(following, key=following.count)
            share = following.count(token) / len(ends)
            certainty *= share
            if token == self._n_vocab or share < self._p_min or certainty < MIN_CONFIDENCE:
                return proposed, confidences
            proposed.append(token)
            confidences.append(share)
            ends = [end + 1 for end, other in zip(ends, following, strict=True) if other == token]
        rest = tokens[ends[0] + 1 : ends[0] + 1 + n_max - len(proposed)]
        if self._n_vocab in rest:
            rest = rest[: rest.index(self._n_vocab)]
        proposed += rest
        confidences += [1.0] * len(rest)
        return proposed, confidences

    def finished(self, request: Request) -> None:
        """Keep its output."""
        output = request.output_tokens[: max(0, self._max_tokens // 2 - 1)]
        if len(output) <= NGRAM:
            return
        if self.n_tokens + len(output) + 1 > self._max_tokens:
            self._forget()
        self._clock += 1
        self._add(output, request.salt, self._clock)

    def _add(self, output: list[int], salt: int, used: int) -> None:
        self._starts.append(len(self._index.tokens))
        self._salts.append(salt)
        self._used.append(used)
        self._index.tokens += [*output, self._n_vocab]      # a token that no text has parts them

    def _forget(self) -> None:
        """Keep the outputs used last, at most half of the tokens, in their order."""
        stops = [*self._starts[1:], self.n_tokens]
        outputs = sorted(zip(self._used, self._starts, stops, self._salts, strict=True), reverse=True)
        kept: list[tuple[int, int, list[int]]] = []
        n_left = self._max_tokens // 2
        for used, start, stop, salt in outputs:
            n_left -= stop - start
            if n_left < 0:
                break
            kept.append((used, salt, self._index.tokens[start : stop - 1]))
        self._fill(kept[::-1])

    def _fill(self, outputs: list[tuple[int, int, list[int]]]) -> None:
        self._index = NgramIndex([], NGRAM, self._n_vocab)
        self._starts: list[int] = []            # of each output in the index
        self._salts: list[int] = []             # of the request that it answered
        self._used: list[int] = []              # when it was used last
        for used, salt, output in outputs:
            self._add(output, salt, used)
