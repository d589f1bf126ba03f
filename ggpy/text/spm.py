"""SentencePiece byte-pair encoding as llama.cpp does it: adjacent symbols merge while the result is a token.

The pair whose token has the highest score merges first, the leftmost of equals; characters that end up in no token
become byte tokens. Merging runs in Python because it needs nothing but the vocabulary itself: no merge list has to be
derived at load time, and words that come again are looked up.
"""

import re
from heapq import heapify, heappop, heappush

from ggpy.errors import TokenizerError
from ggpy.text import metadata as md
from ggpy.text import utf8
from ggpy.text.vocab import SPACE_MARK, Vocab

_MAX_CACHED_WORDS = 65_536
_MAX_CACHED_LENGTH = 64


class SentencePieceModel:
    """Encodes text without special tokens."""

    def __init__(self, vocab: Vocab) -> None:
        if vocab.scores is None:
            raise TokenizerError(f"{md.PREFIX}scores: expected one score per token, found nothing (the key is missing)")
        self._ids = vocab.ids
        self._costs: list[float] = (-vocab.scores).tolist()
        self._unknown = vocab.special.get("unk")
        self._word_start = _word_start_pattern(vocab.tokens)
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of an escaped text, in which spaces are still spaces."""
        text = text.replace(" ", SPACE_MARK)
        if not utf8.is_valid(text):
            return list(self._encode_word(utf8.split_by_lead_byte(text)))       # a stray lead byte may take in a space
        ids: list[int] = []
        for word in self._word_start.split(text):
            known = self._cache.get(word)
            if known is None:
                known = self._encode_word(list(word))
                if len(word) <= _MAX_CACHED_LENGTH:
                    if len(self._cache) >= _MAX_CACHED_WORDS:
                        self._cache.clear()
                    self._cache[word] = known
            ids.extend(known)
        return ids

    def _encode_word(self, symbols: list[str]) -> tuple[int, ...]:
        self._merge(symbols)
        ids: list[int] = []
        for symbol in symbols:
            if not symbol:
                continue
            token_id = self._ids.get(symbol)
            if token_id is None:
                ids.extend(self._byte_ids(symbol))
            else:
                ids.append(token_id)
        return tuple(ids)

    def _merge(self, symbols: list[str]) -> None:
        """Merge `symbols` in place: a merged symbol stands at the left one's index, the right one becomes empty."""
        ids, costs, n = self._ids, self._costs, len(symbols)
        before, after = list(range(-1, n - 1)), [*range(1, n), -1]
        queue = []
        for left in range(n - 1):
            token_id = ids.get(symbols[left] + symbols[left + 1])
            if token_id is not None:
                queue.append((costs[token_id], left, left + 1, len(symbols[left]) + len(symbols[left + 1])))
        heapify(queue)
        while queue:
            _, left, right, length = heappop(queue)
            # A side that has merged since is empty or longer.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            following = after[left] = after[right]
            if following >= 0:
                before[following] = left
            for first, second in ((before[left], left), (left, following)):
                if first >= 0 and second >= 0:
                    token_id = ids.get(symbols[first] + symbols[second])
                    if token_id is not None:
                        heappush(
                            queue, (costs[token_id], first, second, len(symbols[first]) + len(symbols[second]))
                        )

    def _byte_ids(self, symbol: str) -> list[int]:
        """Byte tokens of a symbol; bytes without one are unknown tokens, or left out where there is none."""
        ids = [self._ids.get(f"<0x{byte:02X}>", self._ids.get(chr(byte), self._unknown))
               for byte in utf8.to_bytes(symbol)]
        return [i for i in ids if i is not None]


def _word_start_pattern(tokens: list[str]) -> re.Pattern[str]:
    """Matches the empty string before a space mark that no token reaches across: no merge can either."""
    parts = "\0".join(tokens).split(SPACE_MARK)
    crossed = {part[-1] if part else SPACE_MARK for part in parts[:-1]} | {"\0"}
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(crossed)))}])(?={SPACE_MARK})")
