"""The text of an answer as its tokens arrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Decoder(Protocol):
    """Turns tokens into text, whole characters only; ggpy.text.StreamDecoder is one."""

    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


class OutputText:
    """Releases text once it is certain that no stop string begins in it."""

    def __init__(self, decoder: Decoder, stop: Iterable[str] = ()) -> None:
        self.stopped = False        # a stop string is complete: the answer has ended before it
        self._decoder = decoder
        self._stop = tuple(stop)
        self._held = ""

    def push(self, token_id: int) -> str:
        """The text that is certain after `token_id`; `stopped` says whether it is the last."""
        return self._release(self._decoder.push(token_id))

    def finish(self) -> str:
        """The rest, when the answer has ended for another reason."""
        released = self._release(self._decoder.finish())
        if not self.stopped:
            released, self._held = released + self._held, ""
        return released

    def _release(self, text: str) -> str:
        if not self._stop:
            return text
        self._held += text
        end = self._stop_start()
        if end is None:
            end = len(self._held) - self._num_doubtful()
        else:
            self.stopped = True
        released, self._held = self._held[:end], "" if self.stopped else self._held[end:]
        return released

    def _stop_start(self) -> int | None:
        """Where the stop string begins that is complete first, the longest of several, however tokens are cut."""
        starts = {stop: self._held.find(stop) for stop in self._stop}
        found = [(start + len(stop), start) for stop, start in starts.items() if start >= 0]
        return min(found)[1] if found else None

    def _num_doubtful(self) -> int:
        """How many characters at the end may begin a stop string."""
        longest = max(map(len, self._stop), default=0)
        for n in range(min(longest - 1, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-n:]) for stop in self._stop):
                return n
        return 0
