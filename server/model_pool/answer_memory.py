"""What models answered, by the prompts that they answered.

Clients send a conversation again with each turn, and the template writes what the model said before in its own way:
with other spaces in the arguments of a call, without a space at the end, in other tokens. Where that means the same,
the tokens that the model wrote take its place, for those are in the cache.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from hashlib import blake2b

MAX_PROMPTS = 1024          # that are remembered, those that were answered last
MAX_TOKENS = 1 << 22        # of their answers
MAX_ANSWERS = 8             # to one prompt

IsSame = Callable[[list[int], list[int], bool], bool]


@dataclass(frozen=True, slots=True)
class PastAnswer:
    """What a model wrote."""

    tokens: array[int]
    is_open: bool           # whether the prompt had begun reasoning


class AnswerMemory:
    """The last answers of a model. Any thread may use it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, tuple[int, deque[PastAnswer]]] = OrderedDict()  # with the prompt's length
        self._lengths: Counter[int] = Counter()         # of the prompts
        self._n_tokens = 0
        self._lock = threading.Lock()

    def add(self, prompt: Sequence[int], answer: Sequence[int], *, is_open: bool) -> None:
        """Remember an answer, without the token that ended it."""
        key = digest(blake2b(array("q", prompt).tobytes(), digest_size=16))
        new = PastAnswer(array("q", answer), is_open)
        with self._lock:
            _, known = self._answers.pop(key, (0, deque[PastAnswer]()))
            if not known:
                self._lengths[len(prompt)] += 1
            elif new in known or len(known) == MAX_ANSWERS:
                gone = new if new in known else known[0]
                known.remove(gone)
                self._n_tokens -= len(gone.tokens)
            known.append(new)
            self._n_tokens += len(new.tokens)
            self._answers[key] = len(prompt), known
            while len(self._answers) > MAX_PROMPTS or (self._n_tokens > MAX_TOKENS and len(self._answers) > 1):
                self._forget()

    def _forget(self) -> None:
        _, (n_prompt, known) = self._answers.popitem(last=False)
        self._n_tokens -= sum(len(past.tokens) for past in known)
        self._lengths[n_prompt] -= 1
        if not self._lengths[n_prompt]:
            del self._lengths[n_prompt]

    def restored(self, tokens: Sequence[int], ends: Container[int], is_same: IsSame) -> list[int]:
        """The prompt `tokens` with answers as the model wrote them.

        An answer stands behind a prompt that is remembered, up to the first of `ends`. `is_same(written, known,
        is_open)` tells whether both mean the same.
        """
        data = array("q", tokens)
        with self._lock:
            lengths = sorted(self._lengths)
        prefix, n_hashed = blake2b(digest_size=16), 0
        for length in lengths:
            if length >= len(data):
                break
            prefix.update(data[n_hashed:length].tobytes())
            n_hashed = length
            with self._lock:
                known = [*self._answers.get(digest(prefix), (0, ()))[1]]
            end = next((i for i in range(length, len(data)) if data[i] in ends), None) if known else None
            if end is not None:
                data[length:end] = chosen(data[length:end], known, is_same)
        return data.tolist()


def digest(state: blake2b) -> bytes:
    return state.copy().digest()


def chosen(written: array[int], known: Sequence[PastAnswer], is_same: IsSame) -> array[int]:
    """`written`, or what the model said if that is the same."""
    if any(past.tokens == written for past in known):
        return written
    for past in reversed(known):
        if is_same(written.tolist(), past.tokens.tolist(), past.is_open):
            return past.tokens
    return written
