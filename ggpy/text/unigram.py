"""SentencePiece unigram (T5): the segmentation with the highest sum of token scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ggpy.errors import TokenizerError
from ggpy.text import metadata as md
from ggpy.text.charsmap import CharsMap
from ggpy.text.vocab import SPACE_MARK, TokenAttr, Vocab

_UNKNOWN_PENALTY = 10.0


class UnigramModel:
    """Encodes text without special tokens; runs of characters that no token covers are one unknown token."""

    def __init__(self, vocab: Vocab, metadata: Mapping[str, Any]) -> None:
        if vocab.scores is None or "unk" not in vocab.special:
            missing = "scores" if vocab.scores is None else "unknown_token_id"
            raise TokenizerError(f"{md.PREFIX}{missing}: a unigram tokenizer needs it; found nothing")
        matched = vocab.with_attr(TokenAttr.NORMAL | TokenAttr.USER_DEFINED | TokenAttr.UNUSED)
        self._score = {
            vocab.tokens[i]: (0.0 if vocab.has(i, TokenAttr.USER_DEFINED) else float(vocab.scores[i]), i)
            for i in matched
        }
        normal = vocab.scores[vocab.with_attr(TokenAttr.NORMAL)]
        self._unknown = vocab.special["unk"]
        self._unknown_score = float(np.min(normal, initial=np.float32(0)) - np.float32(_UNKNOWN_PENALTY))
        self._max_length = max(map(len, vocab.tokens))
        user_defined = [vocab.tokens[i] for i in vocab.with_attr(TokenAttr.USER_DEFINED)]
        self._charsmap = CharsMap.from_metadata(metadata, user_defined)
        self._add_space_prefix = vocab.add_space_prefix
        self._merge_spaces = md.read_bool(metadata, md.PREFIX + "remove_extra_whitespaces", False)

    def encode(self, text: str) -> list[int]:
        """Token ids of an escaped text."""
        return self._best_path(self._mark_spaces(self._charsmap.normalize(text)))

    def _mark_spaces(self, text: str) -> str:
        if not self._merge_spaces:
            is_prefixed = self._add_space_prefix and text.strip(" ")
            at = len(text) - len(text.lstrip(" "))      # the prefix stands before the first word, not the first space
            return (text[:at] + " " + text[at:] if is_prefixed else text).replace(" ", SPACE_MARK)
        return "".join(SPACE_MARK + word for word in text.split(" ") if word)

    def _best_path(self, text: str) -> list[int]:
        n = len(text)
        best: list[tuple[float, int, int]] = [(0.0, 0, self._unknown)] + [(-np.inf, 0, self._unknown)] * n
        for start in range(n):
            score = best[start][0]
            has_single = False
            for end in range(start + 1, min(n, start + self._max_length) + 1):
                token = self._score.get(text[start:end])
                if token is not None:
                    has_single |= end == start + 1
                    if score + token[0] > best[end][0]:
                        best[end] = (score + token[0], start, token[1])
            if not has_single and score + self._unknown_score > best[start + 1][0]:
                best[start + 1] = (score + self._unknown_score, start, self._unknown)

        ids: list[int] = []
        end = n
        while end > 0:
            _, start, token_id = best[end]
            if token_id != self._unknown or not ids or ids[-1] != self._unknown:
                ids.append(token_id)
            end = start
        return ids[::-1]
