"""Prompt lookup: what followed the last tokens when they occurred before in the same request."""

from __future__ import annotations

from ggpy.engine.request import Request
from ggpy.engine.speculation.ngram_index import NgramIndex, common_suffix
from ggpy.engine.speculation.proposer import NOTHING, Proposal

LONG = 4                # tokens of an n-gram that is looked for first: it leads past the many places of a short one
MOST_MATCHES = 32       # places that are looked at, the latest ones


class PromptLookup:
    """Proposes what stands behind the longest match of the last tokens, the latest one of equally long ones.

    Good where answers repeat their prompts, as edits of code, summaries and quotations do. The idea is Saxena's,
    "Prompt Lookup Decoding" (2023).
    """

    def __init__(self, n_vocab: int, ngram_min: int, ngram_max: int) -> None:
        self._n_vocab, self._least, self._most = n_vocab, ngram_min, ngram_max
        self._indexes: dict[int, list[NgramIndex]] = {}     # by request, that of the longest n-grams first

    def propose(self, request: Request, n_max: int) -> Proposal:
        """See Proposer. A match that reaches into the end of the tokens goes on periodically."""
        matches = self._matches(request)
        if not matches or n_max < 1:
            return NOTHING
        tokens = request.tokens
        n = len(tokens)
        best, longest = -1, 0
        for end in matches:
            if end < longest or tokens[end - longest] != tokens[n - 1 - longest]:
                continue                # it is not longer
            length = common_suffix(tokens, end + 1, tokens, n, self._most)
            if length > longest:
                best, longest = end, length
                if length == self._most:
                    break
        period = n - 1 - best
        proposed = tokens[best + 1 : best + 1 + n_max]
        proposed += [proposed[i % period] for i in range(len(proposed), n_max)]
        return Proposal(tuple(proposed), (1.0,) * n_max, "ngram", longest)

    def _matches(self, request: Request) -> list[int]:
        """Where the last tokens of `request` occurred before, by the longest n-gram that did.

        Nowhere as long as the indexes are still taking in a long prompt, a part of it at each step.
        """
        indexes = self._indexes.get(request.id)
        if indexes is None or indexes[0].tokens is not request.tokens:      # other tokens, once the context was shifted
            sizes = sorted({self._least, min(self._most, max(self._least, LONG))}, reverse=True)
            indexes = self._indexes[request.id] = [NgramIndex(request.tokens, n, self._n_vocab) for n in sizes]
        are_level = [index.update() for index in indexes]
        if not all(are_level):
            return []
        for index in indexes:
            if matches := index.own_matches(MOST_MATCHES):
                return matches
        return []

    def finished(self, request: Request) -> None:
        """Forget it."""
        self._indexes.pop(request.id, None)
