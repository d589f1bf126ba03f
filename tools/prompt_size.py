"""How large a text is at least, known long before it is encoded."""

from __future__ import annotations

from ggpy.text import Tokenizer
from ggpy.text.vocab import VocabType

SHORT = 100_000         # characters that are encoded before anybody gets impatient


def least_tokens(text: str, tokenizer: Tokenizer) -> int:
    """A number of tokens that `text` has at least; 0 if it is short, or if that cannot be told."""
    if len(text) <= SHORT or tokenizer.vocab_type not in (VocabType.BPE, VocabType.SPM):    # others drop characters
        return 0
    longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.n_vocab))      # no token has more characters
    n_characters = sum(map(len, text.split()))      # the blanks around a control token may be none of the model's
    return n_characters // longest
