"""Special tokens that are known by their text: what files leave unsaid, and where generation ends.

The texts and rules are those of llama.cpp's llama-vocab.cpp.
"""

from collections.abc import Mapping
from typing import Any

from ggpy.text.vocab import TokenAttr, Vocab

_TEXTS_OF_ROLE = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
        "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_prefix": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suffix": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_middle": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_INFILL_KEYS = {"fim_prefix": ("fim_pre", "prefix"), "fim_suffix": ("fim_suf", "suffix"),
                "fim_middle": ("fim_mid", "middle")}
_END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)
_END_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")
_ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")       # gpt-oss: structure, not control


def complete_special_ids(vocab: Vocab) -> None:
    """Find roles that the file leaves open by the texts of tokens; these tokens become control tokens."""
    for role, texts in _TEXTS_OF_ROLE.items():
        if role in vocab.special:
            continue
        found = [vocab.ids[text] for text in texts if text in vocab.ids]
        # Padding seldom ends a turn: among several candidates it comes last.
        found.sort(key=lambda i: i == vocab.special.get("pad"))
        if found:
            vocab.special[role] = found[0]
            vocab.attrs[found[0]] |= TokenAttr.CONTROL


def knows_infill(metadata: Mapping[str, Any]) -> bool:
    """Whether a model has the tokens of prompts that ask for the middle of a text; it takes no Tokenizer."""
    texts = frozenset(metadata.get("tokenizer.ggml.tokens", ()))
    return all(any(f"tokenizer.ggml.{key}_token_id" in metadata for key in keys)
               or not texts.isdisjoint(_TEXTS_OF_ROLE[role]) for role, keys in _INFILL_KEYS.items())


def find_eog_ids(vocab: Vocab) -> frozenset[int]:
    """Ids on which generation ends; tokens known as ends by their text become control tokens.

    Call after `complete_special_ids`.
    """
    ids = {vocab.special[role] for role in _END_ROLES if role in vocab.special}
    for text in _END_TEXTS:
        if text in vocab.ids:
            ids.add(vocab.ids[text])
            vocab.attrs[vocab.ids[text]] |= TokenAttr.CONTROL
    for text in _ALWAYS_SHOWN:
        if text in vocab.ids:
            vocab.attrs[vocab.ids[text]] = TokenAttr.USER_DEFINED | TokenAttr.STRUCTURE

    texts = {vocab.tokens[i] for i in ids}
    has_call = not texts.isdisjoint({"<|call|>", "<|calls|>"})
    if "<|end|>" in texts and has_call and not texts.isdisjoint({"<|return|>", "<|flush|>"}):
        # ends a message there, not the turn
        _make_ordinary(vocab, ids, "<|end|>", TokenAttr.USER_DEFINED | TokenAttr.STRUCTURE)
    if "</s>" in texts and not texts.isdisjoint({"<|tool_response>", "<|plamo:eos|>"}):
        _make_ordinary(vocab, ids, "</s>", TokenAttr.NORMAL)
    return frozenset(ids)


def _make_ordinary(vocab: Vocab, ids: set[int], text: str, attr: TokenAttr) -> None:
    ids.discard(vocab.ids[text])
    vocab.attrs[vocab.ids[text]] = attr


def set_strip_attrs(vocab: Vocab, metadata: Mapping[str, Any]) -> None:
    """Mark the special tokens that take whitespace around them, which files do not state but some models need."""
    pre, arch = str(metadata.get("tokenizer.ggml.pre", "")), str(metadata.get("general.architecture", ""))
    name = str(metadata.get("general.name", "")).lower()
    if _has_any(pre, "jina-v2-de", "jina-v2-es", "jina-v2-code") or _has_any(arch, "nomic-bert-moe", "jina-bert-v3"):
        _set_attr(vocab, "<mask>", TokenAttr.LSTRIP)
    elif _has_any(name, "phi-3", "phi3"):
        kept = {"<unk>", "<s>", "<|endoftext|>"}
        for token_id in vocab.with_attr(TokenAttr.CONTROL | TokenAttr.USER_DEFINED | TokenAttr.UNKNOWN):
            if vocab.tokens[token_id] not in kept:
                vocab.attrs[token_id] |= TokenAttr.RSTRIP
        _set_attr(vocab, "</s>", TokenAttr.RSTRIP)
    elif _has_any(name, "modern-bert"):
        _set_attr(vocab, "[MASK]", TokenAttr.LSTRIP)


def _has_any(text: str, *parts: str) -> bool:
    return any(part in text for part in parts)


def _set_attr(vocab: Vocab, text: str, attr: TokenAttr) -> None:
    if text in vocab.ids:
        vocab.attrs[vocab.ids[text]] |= attr
