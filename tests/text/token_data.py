"""llama.cpp's tokens, and small vocabularies written by hand."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ggpy.text.byte_alphabet import to_alphabet

DATA = Path(__file__).parents[1] / "data" / "tokens"
GOLDEN_OF_MODEL = {
    "smollm2:135m": "smollm2", "gemma3:270m": "gemma3",
    "qwen2.5-coder:0.5b": "qwen25c", "qwen2.5-coder:1.5b": "qwen25c",
}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@cache
def load(name: str) -> dict[str, Any]:
    """The data set `name`; see README.md beside it."""
    data: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return data


def byte_bpe(**changes: Any) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: ids 0 to 255 are the bytes, then a few merges and special tokens.

    256 "he", 257 "ll", 258 "hell", 259 "hello", 260 " hello"; control tokens 261 "<bos>", 262 "<|im_end|>";
    user-defined 263 "<tool>". `changes` replace keys under `tokenizer.ggml.`; None removes one.
    """
    tokens = [to_alphabet(bytes([byte])) for byte in range(256)]
    tokens += ["he", "ll", "hell", "hello", "Ġhello", "<bos>", "<|im_end|>", "<tool>"]
    values: dict[str, Any] = {
        "model": "gpt2", "pre": "gpt-2", "tokens": tokens,
        "token_type": np.array([NORMAL] * 261 + [CONTROL, CONTROL, USER_DEFINED], np.int32),
        "merges": ["h e", "l l", "he ll", "hell o", "Ġ hello"],
        "bos_token_id": 261, "eos_token_id": 262, "add_bos_token": True,
    }
    values |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary: 0 "<unk>", 1 "<s>", 2 "</s>", 3 to 258 the bytes, then a few pieces."""
    pieces = {"▁": -9.0, "a": -9.0, "b": -9.0, "c": -9.0, "ab": -2.0, "bc": -1.0, "▁a": -3.0, "▁ab": -4.0}
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + list(pieces)
    values: dict[str, Any] = {
        "model": "llama", "tokens": tokens,
        "token_type": np.array([UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces), np.int32),
        "scores": np.array([0.0] * 259 + list(pieces.values()), np.float32),
    }
    values |= changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}
