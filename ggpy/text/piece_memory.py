"""The tokens of texts that were encoded before: clients send the same system prompt and history with every turn.

A text is cut at its control tokens before anything else, and each piece is encoded by itself, so the tokens of a piece
never depend on its neighbours: what is remembered is exactly what encoding it again would give.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable

MAX_BYTES = 1 << 24         # of pieces and their tokens; those that were not used for longest go
MAX_PIECE_BYTES = 1 << 21   # of one piece: a longer one is no turn of a chat
_ENTRY_BYTES = 256          # that a piece takes beside its text and tokens, about


class PieceMemory:
    """Remembers what `encode`, a function of the text alone, gave. Any thread may use it."""

    def __init__(self, encode: Callable[[str], list[int]], max_bytes: int = MAX_BYTES) -> None:
        self._encode = encode
        self._max_bytes = max_bytes
        # tokens, and what was counted for the entry: a text grows when C code asks for its UTF-8; used last stands last
        self._found: OrderedDict[str, tuple[array[int], int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        """The tokens of `text`."""
        with self._lock:
            known = self._found.get(text)
            if known is not None:
                self._found.move_to_end(text)
        if known is not None:
            return known[0].tolist()
        ids = self._encode(text)
        self._keep(text, array("i", ids))
        return ids

    def _keep(self, text: str, ids: array[int]) -> None:
        size = size_bytes(text, ids)
        if size > min(MAX_PIECE_BYTES, self._max_bytes):
            return
        with self._lock:
            if text in self._found:     # another thread was faster
                return
            self._found[text] = ids, size
            self._n_bytes += size
            while self._n_bytes > self._max_bytes:
                _, (_, size) = self._found.popitem(last=False)
                self._n_bytes -= size


def size_bytes(text: str, ids: array[int]) -> int:
    """What an entry takes."""
    return _ENTRY_BYTES + sys.getsizeof(text) + ids.itemsize * len(ids)
