"""A constraint on the tokens of an answer, by a schema or a grammar. Loads llguidance."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.compiler import short, without_panics
from ggpy.engine.structured.grammar import compiled
from ggpy.engine.structured.patience import Patience
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.engine.structured.trigger import Free, Trigger
from ggpy.errors import ConstraintError, GrammarError
from ggpy.text import Tokenizer

Mask = NDArray[np.int32]

MAX_REMEMBERED = 64     # grammars, for each tokenizer
AT_A_TIME = 2           # grammars that are compiled: steps need the processors too
WORD_BITS = 32          # of a mask


class Grammars:
    """Starts the constraints of requests to a model that has `tokenizer`. Any thread may call it.

    llguidance's view of the vocabulary is built when it is first needed, and compiled grammars are remembered.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._patience = Patience()
        self._compiling = threading.BoundedSemaphore(AT_A_TIME)
        self._tokens: GrammarTokens | None = None
        self._known: OrderedDict[ConstraintSpec, _Compiled] = OrderedDict()
        self.n_words = -(-tokenizer.n_vocab // WORD_BITS)

    def knows(self, spec: ConstraintSpec) -> bool:
        """Whether `spec` is compiled."""
        return spec in self._known

    @without_panics(GrammarError)
    def start(self, spec: ConstraintSpec) -> Constraint:
        """The constraint `spec` at the beginning of an answer.

        Raises GrammarError, which names the place, if it is broken, too large, asks for what cannot be enforced or
        takes too long to compile.
        """
        with self._lock:
            if self._tokens is None:
                self._tokens = GrammarTokens(self._tokenizer)
            known = self._known.get(spec)
        if known is None:
            with self._compiling:
                known = self._known.get(spec) or self._compile(spec, self._tokens)
        with self._lock:
            self._known[spec] = known
            self._known.move_to_end(spec)
            while len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return Constraint(known)

    def _compile(self, spec: ConstraintSpec, tokens: GrammarTokens) -> _Compiled:
        return self._patience.wait_for(spec, lambda: _Compiled(spec, tokens))


class _Compiled:
    """A grammar at its beginning, and what its constraints share."""

    def __init__(self, spec: ConstraintSpec, tokens: GrammarTokens) -> None:
        if not all(spec.after):
            raise GrammarError("after: an empty text stands everywhere; expected texts of one character at least")
        self.tokens = tokens
        self.matcher = compiled(spec, tokens)
        self.matcher.compute_bitmask()      # finds out what every copy would
        if self.matcher.is_error():
            raise GrammarError(f"there is no text that this {spec.kind} constraint allows")
        self.trigger = trigger_of(spec, tokens) if spec.after else None
        self.all = np.full(-(-tokens.n_vocab // WORD_BITS), -1, np.int32)
        if tokens.n_vocab % WORD_BITS:
            self.all[-1] = (1 << tokens.n_vocab % WORD_BITS) - 1
        self._without: dict[tuple[bytes, ...], Mask] = {}

    def free_mask(self, free: Free, matcher: LLMatcher) -> Mask:
        """Every token, but those that complete a text of the trigger and go on as the grammar cannot begin.

        `matcher` stands at the beginning, and stays there.
        """
        assert self.trigger is not None
        if free.in_reasoning:
            return self.all
        parts = self.trigger.parts(free)
        mask = self._without.get(parts)
        if mask is None:
            mask = self.all.copy()
            words = mask.view(np.uint32)
            for token, rest in self.trigger.crossing(free):
                if token in self.tokens.special or not self.can_begin(rest, matcher):
                    words[token // WORD_BITS] &= np.uint32(~(1 << token % WORD_BITS) & 0xFFFFFFFF)
            self._without[parts] = mask
        return mask

    def can_begin(self, rest: bytes, matcher: LLMatcher) -> bool:
        tokens = self.tokens.index.tokenize_bytes(rest)
        return matcher.validate_tokens(tokens) == len(tokens)


def trigger_of(spec: ConstraintSpec, tokens: GrammarTokens) -> Trigger:
    """What ends the free part of an answer to `spec`."""
    reasoning = None if spec.reasoning is None else (spec.reasoning[0].encode(), spec.reasoning[1].encode())
    return Trigger([text.encode() for text in spec.after], tokens.pieces, reasoning)


class Constraint:
    """How far the answer of one request is in its grammar. One thread at a time may use it."""

    def __init__(self, compiled: _Compiled) -> None:
        self._compiled = compiled
        self._matcher: LLMatcher = compiled.matcher.deep_copy()
        self._eog_ids = compiled.tokens.tokenizer.eog_ids
        self._is_free = compiled.trigger is not None
        self._free = Free() if compiled.trigger is None else compiled.trigger.start
        self._has_ended = False

    @property
    @without_panics(ConstraintError)
    def is_finished(self) -> bool:
        """Whether nothing may follow but the end of the answer."""
        return self._has_ended or (not self._is_free and self._matcher.is_stopped())

    @without_panics(ConstraintError)
    def fill(self, masks: Mask, drafts: Sequence[int] = ()) -> None:
        """Write which tokens may come next, and which after each of `drafts`.

        masks (1 + n_drafts, n_words): bit t % 32 of word t // 32 is set if token t may come. A row behind a draft that
        may not come allows all. Raises ConstraintError if the grammar turns out to be too complex.
        """
        saved, n_consumed = (self._is_free, self._free), 0
        self._fill_row(masks[0])
        for i, draft in enumerate(drafts, 1):
            n = self._try(draft)
            if n is None:
                masks[i:] = self._compiled.all
                break
            n_consumed += n
            self._fill_row(masks[i])
        self._go_back(saved, n_consumed)

    @without_panics(ConstraintError)
    def keep_valid(self, drafts: Sequence[int]) -> Sequence[int]:
        """The longest beginning of `drafts` that may come next; the end of an answer is none of it."""
        saved, n_consumed, n_valid = (self._is_free, self._free), 0, 0
        for draft in drafts:
            n = self._try(draft)
            if n is None:
                break
            n_valid += 1
            n_consumed += n
        self._go_back(saved, n_consumed)
        return drafts[:n_valid]

    @without_panics(ConstraintError)
    def forced(self) -> Sequence[int]:
        """Tokens that spell the only text that may come next; () if there are several, or the end."""
        if self._is_free or self.is_finished:
            return ()
        return self._matcher.compute_ff_tokens()

    @without_panics(ConstraintError)
    def accept(self, token: int) -> None:
        """Go on behind `token`. Raises ConstraintError if it may not come."""
        if self._has_ended:
            raise ConstraintError(f"token {token} may not follow the end of the answer")
        if token in self._eog_ids and (self._is_free or self._matcher.is_accepting()):
            self._has_ended = True
        elif self._try(token) is None:
            self._check()
            raise ConstraintError(f"token {token} may not come here")

    def _fill_row(self, mask: Mask) -> None:
        if self._is_free:
            mask[:] = self._compiled.free_mask(self._free, self._matcher)
            return
        assert mask.flags["C_CONTIGUOUS"], "llguidance writes to its address"
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"the grammar is too complex at this place: {short(self._matcher.get_error())}")

    def _try(self, token: int) -> int | None:
        """Go on behind `token`: how many tokens the matcher took. None, and nothing has changed, if it may not come."""
        if token in self._eog_ids:
            return None
        if not self._is_free:
            return 1 if self._matcher.try_consume_tokens([token]) == 1 else None
        assert self._compiled.trigger is not None
        free, rest = self._compiled.trigger.step(self._free, token)
        tokens = self._compiled.tokens.index.tokenize_bytes(rest) if rest else []
        if tokens and self._matcher.validate_tokens(tokens) < len(tokens):
            return None
        if tokens:
            self._matcher.consume_tokens(tokens)
        self._free, self._is_free = free, rest is None
        return len(tokens)

    def _go_back(self, saved: tuple[bool, Free], n_consumed: int) -> None:
        if n_consumed:
            self._matcher.rollback(n_consumed)
        self._is_free, self._free = saved
