"""A smaller model that guesses what a larger one will say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, Backend, StepSequence
from ggpy.engine.kv_cache import KVCache, SequenceKV
from ggpy.engine.request import Request
from ggpy.engine.speculation.proposer import NOTHING, Proposal
from ggpy.errors import ConfigError

if TYPE_CHECKING:
    from ggpy.text import Tokenizer

MOST_PADDING = 128      # tokens by which vocabularies may differ in size: some are padded, as llama.cpp allows
MOST_READ = 64          # tokens of one step, if requests that it has read to their end do not have more
MOST_NEW = 2            # tokens that such a request may have: a draft that was not computed, and what follows it


@dataclass(slots=True)
class Draft:
    """A request in the draft model's own pages."""

    request: Request
    kv: SequenceKV
    n_tokens: int = 0                   # of the request, when the last guess was made
    guess: tuple[int, ...] = ()         # behind these; all but the last one have been computed
    n_known: int = 0                    # tokens of the request that the draft model is sure to have

    @property
    def n_computed(self) -> int:
        """Tokens of the request whose keys and values are right, at most all but the last, which is to be computed."""
        tokens = self.request.tokens
        n = self.kv.num_computed
        if n == self.n_tokens:
            for token in self.guess[:-1]:
                if n == len(tokens) or tokens[n] != token:
                    break
                n += 1
        return min(n, len(tokens) - 1)


class DraftModel:
    """Guesses the tokens that `backend` finds most probable, for all requests in the same steps.

    Each request has a sequence in a KV cache of the draft model's own. `n_vocab` is the target's; `p_min` ends a guess
    before a token that the draft model finds less probable. What it has to read before it can guess, such as a prompt,
    it reads in steps of few tokens, one for each call of `propose_all`, so that answers go on meanwhile.
    """

    def __init__(self, backend: Backend, n_vocab: int, p_min: float = 0.0) -> None:
        self._backend, self._p_min = backend, p_min
        self._n_vocab = min(n_vocab, backend.n_vocab)
        self._cache = KVCache([group.window for group in backend.kv_groups], backend.n_pages, backend.table_pages,
                              backend.copy_page)
        self.n_read = 0                         # tokens that were read before the last guesses
        self.n_read_of_answers = 0              # of these, tokens of answers
        self._drafts: dict[int, Draft] = {}     # by request, the one used longest ago first
        self._unreadable: set[int] = set()      # requests with a token that this model does not have

    def propose_all(self, requests: Sequence[Request], n_max: int) -> list[Proposal]:
        """For each request at most `n_max` tokens.

        None where its tokens have not been read yet, or one of them is padding that only the target's vocabulary has.
        """
        ready = self._read(requests, n_max)
        guesses: dict[int, list[int]] = {draft.request.id: [] for draft, _ in ready}
        confidences: dict[int, list[float]] = {draft.request.id: [] for draft, _ in ready}
        going = [draft for draft, _ in ready]
        chosen = [choice for _, choice in ready]
        for i in range(n_max):
            kept = [(draft, token, p) for draft, (token, p) in zip(going, chosen, strict=True) if p >= self._p_min]
            for draft, token, p in kept:
                guesses[draft.request.id].append(token)
                confidences[draft.request.id].append(p)
            going = [draft for draft, _, _ in kept]
            if not going or i == n_max - 1:
                break
            chosen = self._forward([
                StepSequence([token], len(draft.request.tokens) + i, draft.kv.page_table, 1)
                for draft, token, _ in kept])
        for draft, _ in ready:
            draft.n_tokens, draft.guess = len(draft.request.tokens), tuple(guesses[draft.request.id])
        return [Proposal(tuple(guesses[request.id]), tuple(confidences[request.id]), "draft")
                if guesses.get(request.id) else NOTHING for request in requests]

    def finished(self, request: Request) -> None:
        """Let go of its pages."""
        self._unreadable.discard(request.id)
        self._close(self._drafts.pop(request.id, None))

    def reset(self) -> None:
        """Forget all requests and pages, whatever state a failure left them in."""
        self._drafts.clear()
        self._unreadable.clear()
        self._cache.clear()

    def close(self) -> None:
        """Free the backend."""
        self._backend.close()

    def _read(self, requests: Sequence[Request], n_max: int) -> list[tuple[Draft, tuple[int, float]]]:
        """Compute what `requests` have pending, as far as one step goes: the drafts that are ready, with what follows.

        Those with least to read come first.
        """
        drafts = sorted((draft for request in requests if (draft := self._opened(request, n_max, requests))),
                        key=lambda draft: len(draft.request.tokens) - draft.n_computed)
        budget = min(self._backend.max_tokens, max(MOST_READ, MOST_NEW * len(drafts)))
        ready: list[Draft] = []
        sequences = []
        for draft in drafts:
            tokens, first = draft.request.tokens, draft.n_computed
            length = min(budget, len(tokens) - first)
            is_ready = first + length == len(tokens)
            if length == 0 or (is_ready and len(ready) == self._backend.max_outputs):
                break
            sequences.append(StepSequence(tokens[first : first + length], first, draft.kv.page_table, int(is_ready)))
            budget -= length
            if is_ready:
                ready.append(draft)
        self.n_read = sum(len(sequence.tokens) for sequence in sequences)
        self.n_read_of_answers = sum(
            min(len(sequence.tokens), sequence.first_position + len(sequence.tokens) - len(draft.request.prompt_tokens))
            for draft, sequence in zip(drafts, sequences, strict=False)
            if sequence.first_position + len(sequence.tokens) > len(draft.request.prompt_tokens))
        choices = self._forward(sequences)
        for draft, sequence in zip(drafts, sequences, strict=False):
            n_computed = sequence.first_position + len(sequence.tokens)
            self._cache.advance(draft.kv, draft.request.tokens, n_computed)
            draft.n_tokens, draft.guess = n_computed, ()
        return list(zip(ready, choices, strict=True))

    def _opened(self, request: Request, n_max: int, others: Sequence[Request]) -> Draft | None:
        """Its draft, with pages for all tokens and a guess; None if there are none, or its context has no room, or the
        model lacks a token."""
        draft = self._drafts.pop(request.id, None)
        n_wanted = len(request.tokens) + n_max
        if not self._can_read(request, 0 if draft is None else draft.n_known):
            self._close(draft)
            return None
        if draft is None:
            draft = Draft(request, self._cache.open(request.tokens, request.salt))
        self._drafts[request.id] = draft        # used last
        draft.n_known = len(request.tokens)
        if n_wanted > self._backend.table_pages * PAGE_TOKENS:
            return None
        while not self._cache.reserve(draft.kv, n_wanted):
            idle = next((each.request for each in self._drafts.values() if each.request not in others), None)
            if idle is None:
                return None
            self.finished(idle)
        return draft

    def _can_read(self, request: Request, n_known: int) -> bool:
        """Whether the model has all tokens of `request`, as it has the first `n_known`."""
        if request.id in self._unreadable:
            return False
        if max(request.tokens[n_known:], default=0) < self._backend.n_vocab:
            return True
        self._unreadable.add(request.id)
        return False

    def _close(self, draft: Draft | None) -> None:
        if draft is not None:
            self._cache.close(draft.kv)

    def _forward(self, sequences: Sequence[StepSequence]) -> list[tuple[int, float]]:
        """For each sequence with an output its most probable token and, if p_min asks for it, the probability; else 1.
        """
        if not sequences:
            return []
        logits = self._backend.forward(sequences)[:, : self._n_vocab]
        tokens = logits.argmax(axis=1).tolist()
        return list(zip(tokens, best_probabilities(logits) if self._p_min else [1.0] * len(tokens), strict=True))


def best_probabilities(logits: NDArray[np.float32]) -> list[float]:
    """The probability of the best token of each row."""
    best = logits.max(axis=1, keepdims=True)
    probabilities: list[float] = (1 / np.exp(logits - best).sum(axis=1)).tolist()
    return probabilities


def check_vocabularies(target: Tokenizer, draft: Tokenizer) -> None:
    """Raise ConfigError unless the tokens of a draft model mean what the target's do; it says what differs."""
    why = "; a draft model (-md) needs the vocabulary of the model that it drafts for"
    if target.vocab_type != draft.vocab_type:
        raise ConfigError(f"draft_model: the type of its vocabulary is {draft.vocab_type.name}, expected "
                          f"{target.vocab_type.name}{why}")
    for name in ("bos_id", "eos_id"):
        ours, theirs = getattr(target, name), getattr(draft, name)
        if ours != theirs:
            raise ConfigError(f"draft_model: {name} is {theirs}, expected {ours}{why}")
    if abs(target.n_vocab - draft.n_vocab) > MOST_PADDING:
        raise ConfigError(f"draft_model: it has {draft.n_vocab:,} tokens, expected {target.n_vocab:,}, or at most "
                          f"{MOST_PADDING} more or fewer{why}")
    for token in range(min(target.n_vocab, draft.n_vocab)):
        ours, theirs = target.token_bytes(token), draft.token_bytes(token)
        if ours != theirs:
            raise ConfigError(f"draft_model: token {token} is {theirs!r:.80}, expected {ours!r:.80}{why}")
