"""Logarithms of probabilities as OpenAI's completions tell them: arrays beside each other, one place for each token."""

from __future__ import annotations

import asyncio
import codecs
import math
from collections.abc import Sequence
from typing import Any

from ggpy.engine.probabilities import TokenProbability, of_logits
from ggpy.server.jobs.probabilities import LOWEST, probability_objects
from ggpy.server.model_pool.models import LoadedModel
from ggpy.text import Tokenizer

CHUNK = 32      # tokens of a prompt whose logits, each as wide as the vocabulary, are held at once


async def prompt_probabilities(model: LoadedModel, tokens: Sequence[int], n_top: int) -> list[TokenProbability]:
    """How probable each token of a prompt was after those before it; nothing is known of the first, so it has NaN."""
    found = [TokenProbability(tokens[0], math.nan)] if tokens else []
    for start in range(1, len(tokens), CHUNK):
        stop = min(start + CHUNK, len(tokens))
        logits = await model.client.logits(tokens[: stop - 1], stop - start)
        found += await asyncio.to_thread(
            lambda rows, wanted: [of_logits(row, token, n_top) for row, token in zip(rows, wanted, strict=True)],
            logits, tokens[start:stop])
    return found


class LogprobArrays:
    """Makes the objects of one choice, whose text may come in several chunks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_chars = 0       # of whole characters, up to here

    def object(self, found: Sequence[TokenProbability], *, is_post: bool = False) -> dict[str, Any]:
        """OpenAI's arrays, and beside them `content`, which is llama-server's.

        The arrays leave out a token that ends the answer, as it is no part of the text. `text_offset` counts the
        characters of the choice's text; a token that has only a part of a character is where that begins.
        """
        shown = [one for one in found if one.token not in self._tokenizer.eog_ids]
        return {"tokens": [self._name(one.token) for one in shown],
                "token_logprobs": [bounded(one.logprob) for one in shown],
                "top_logprobs": [self._alternatives(one) for one in shown],
                "text_offset": [self._offset(one.token) for one in shown],
                "content": probability_objects(list(found), self._tokenizer, is_post=is_post)}

    def _alternatives(self, one: TokenProbability) -> dict[str, float] | None:
        """The most probable tokens and the one that came."""
        if math.isnan(one.logprob):
            return None
        names: dict[str, float] = {}
        for token, logprob in (*one.top, (one.token, one.logprob)):
            names.setdefault(self._name(token), bounded(logprob))
        return names

    def _name(self, token: int) -> str:
        """The text of `token`; in OpenAI's spelling where it is no whole text."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _offset(self, token: int) -> int:
        offset = self._n_chars
        self._n_chars += len(self._decoder.decode(self._tokenizer.token_bytes(token)))
        return offset


def bounded(logprob: float) -> float:
    """A number that JSON has; NaN stays, which is written as null."""
    return logprob if math.isnan(logprob) else max(logprob, LOWEST)
