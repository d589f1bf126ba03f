"""The tokenizer of a model, built from its GGUF metadata."""

import functools
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ggpy.text import utf8
from ggpy.text.bpe import BytePairModel
from ggpy.text.byte_alphabet import to_alphabet
from ggpy.text.detokenizer import Detokenizer
from ggpy.text.partition import Span, SpecialTokenPartition
from ggpy.text.piece_memory import PieceMemory
from ggpy.text.special_ids import complete_special_ids, find_eog_ids, set_strip_attrs
from ggpy.text.spm import SentencePieceModel
from ggpy.text.unigram import UnigramModel
from ggpy.text.vocab import SPACE_MARK, Vocab, VocabType, read_vocab
from ggpy.text.wordpiece import WordPieceModel

_SPACES = b" \t\n\r\v\f"

logger = logging.getLogger("ggpy")


class _Model(Protocol):
    def encode(self, text: str) -> list[int]: ...


def _build_model(vocab: Vocab, metadata: Mapping[str, Any]) -> _Model:
    match vocab.type:
        case VocabType.SPM:
            return SentencePieceModel(vocab)
        case VocabType.BPE:
            return BytePairModel(vocab, metadata)
        case VocabType.WPM:
            return WordPieceModel(vocab, metadata)
        case VocabType.UGM:
            return UnigramModel(vocab, metadata)


class Tokenizer:
    """Text to token ids and back, as llama.cpp does it.

    Special ids (`bos_id`, `fim_prefix_id`, ...) are None where the model has no such token. `eog_ids` are the ids on
    which generation ends, `suppress_tokens` those that the file wants never to be generated.
    """

    def __init__(self, vocab: Vocab, model: _Model, eog_ids: frozenset[int]) -> None:
        self._vocab = vocab
        self._model = model
        self._pieces = PieceMemory(model.encode)
        self._partition = SpecialTokenPartition(vocab)
        self._detokenizer = Detokenizer(vocab)
        self.vocab_type = vocab.type
        self.n_vocab = len(vocab.tokens)
        self.add_bos, self.add_eos, self.add_sep = vocab.add_bos, vocab.add_eos, vocab.add_sep
        self.add_space_prefix = vocab.add_space_prefix
        self.eog_ids = eog_ids
        self.suppress_tokens = vocab.suppress_tokens
        special = vocab.special.get
        self.bos_id, self.eos_id = special("bos"), special("eos")
        self.eot_id, self.eom_id = special("eot"), special("eom")
        self.unk_id, self.sep_id = special("unk"), special("sep")
        self.pad_id, self.mask_id = special("pad"), special("mask")
        self.fim_prefix_id, self.fim_suffix_id = special("fim_prefix"), special("fim_suffix")
        self.fim_middle_id, self.fim_pad_id = special("fim_middle"), special("fim_pad")
        self.fim_rep_id, self.fim_sep_id = special("fim_rep"), special("fim_sep")

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """The tokenizer that a GGUF file describes.

        Raises TokenizerError, naming the key, where the metadata is absent, inconsistent or of an unknown kind.
        """
        vocab = read_vocab(metadata)
        model = _build_model(vocab, metadata)
        complete_special_ids(vocab)
        eog_ids = find_eog_ids(vocab)
        set_strip_attrs(vocab, metadata)
        return cls(vocab, model, eog_ids)

    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False,
        literals: Sequence[Span] = (),
    ) -> list[int]:
        """Token ids of `text`; bytes may be invalid UTF-8.

        `add_special` adds what the model wants around a text (BOS, EOS, ...). `parse_special` reads the spelling of a
        control token, such as "<|im_end|>", as that token; never set it for text that a user wrote. `literals` are
        spans of `text` in which it is text all the same, in ascending order.
        """
        ids: list[int] = []
        starts_text = True
        escaped = utf8.escape(text)
        if literals and escaped is not text:
            literals = utf8.escape_spans(text, literals)
        for piece in self._partition.split(escaped, parse_special, literals):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                has_prefix = starts_text and self.add_space_prefix and self.vocab_type is VocabType.SPM
                ids += self._pieces.encode(" " + piece if has_prefix else piece)
            starts_text = isinstance(piece, int)
        return self._add_special(ids) if add_special else ids

    def _add_special(self, ids: list[int]) -> list[int]:
        is_wpm = self.vocab_type is VocabType.WPM
        first = [self.bos_id] if self.add_bos or is_wpm else []
        last = [self.sep_id] if is_wpm else [self.eos_id] if self.add_eos else []
        if first and ids[:1] == first and not is_wpm:
            logger.warning("the text begins with the BOS token that is added to every text: it now has two of them")
        return [i for i in (*first, *ids, *last) if i is not None]

    def decode(
        self, ids: Iterable[int], *, remove_special: bool = False, unparse_special: bool = True,
        clean_spaces: bool | None = None,
    ) -> str:
        """The text of `ids`; bytes that are not valid UTF-8 become U+FFFD. Parameters as for `decode_bytes`."""
        data = self.decode_bytes(
            ids, remove_special=remove_special, unparse_special=unparse_special, clean_spaces=clean_spaces
        )
        return data.decode("utf-8", "replace")

    def decode_bytes(
        self, ids: Iterable[int], *, remove_special: bool = False, unparse_special: bool = True,
        clean_spaces: bool | None = None,
    ) -> bytes:
        """The bytes of `ids` as a whole text. Raises TokenizerError for an id outside the vocabulary.

        `remove_special` leaves out BOS and EOS where encoding adds them, `unparse_special` spells control tokens, and
        `clean_spaces` removes spaces before punctuation (None: as this tokenizer's models expect).
        """
        clean_spaces = self._vocab.clean_spaces if clean_spaces is None else clean_spaces
        return self._detokenizer.decode(
            ids, remove_special=remove_special, unparse_special=unparse_special, clean_spaces=clean_spaces
        )

    def token_bytes(self, token_id: int, special: bool = True) -> bytes:
        """The bytes of one token; none for control and unknown tokens unless `special`.

        Raises TokenizerError for an id outside the vocabulary.
        """
        return self._detokenizer.token_bytes(token_id, special)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has in any case, found without encoding it: a hundred times as quick.

        Whitespace is not counted, of which runs may be one token; 0 where the vocabulary may leave out more than that.
        """
        n_most, uncounted = self._most_bytes
        if n_most == 0:
            return 0
        data = text.encode("utf-8", "surrogatepass").replace(SPACE_MARK.encode(), b"").translate(None, uncounted)
        return -(-len(data) // n_most)

    @functools.cached_property
    def _most_bytes(self) -> tuple[int, bytes]:
        """How many bytes a token stands for at most, 0 if there is no limit, and the bytes that do not count."""
        if self._vocab.pre is not None and self._vocab.pre.byte_level:
            spellings = [to_alphabet(bytes([byte])) for byte in range(256)]
        else:
            spellings = [f"<0x{byte:02X}>" for byte in range(256)]
        absent = bytes(byte for byte in range(256) if spellings[byte] not in self._vocab.ids)   # they are left out
        if self.vocab_type not in (VocabType.BPE, VocabType.SPM) or len(absent) > 64:
            return 0, b""
        uncounted = _SPACES + absent
        return max(len(self.token_bytes(i).translate(None, uncounted)) for i in range(self.n_vocab)), uncounted

    def control_spans(self, text: str, kept: Container[str] = ()) -> list[Span]:
        """Where `text` spells control tokens but `kept`, or parts of them at its ends: for `literals` of `encode`."""
        return self._partition.control_spans(text, kept)

    def token_id(self, text: str) -> int | None:
        """The id of the token that the vocabulary spells `text`, if there is one."""
        return self._vocab.ids.get(text)
