"""Typed reads of tokenizer metadata; a value of the wrong kind raises an error that names its key."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ggpy.errors import TokenizerError
from ggpy.gguf import StringArray

PREFIX = "tokenizer.ggml."
_NOT_SET = (-1, 0xFFFFFFFF)     # converters write these for "no such token"


def read_str(metadata: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """The string at `key`. Raises TokenizerError if it is absent without a default, or no string."""
    value = metadata.get(key, default)
    if not isinstance(value, str):
        raise TokenizerError(f"{key}: expected a string, found {_describe(value)}")
    return value


def read_bool(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """The flag at `key`. Raises TokenizerError if it is no boolean."""
    value = metadata.get(key, default)
    if not isinstance(value, bool | np.bool_):
        raise TokenizerError(f"{key}: expected true or false, found {_describe(value)}")
    return bool(value)


def read_token_id(metadata: Mapping[str, Any], key: str, n_vocab: int) -> int | None:
    """The token id at `key`; None if the key is absent or holds -1. Raises TokenizerError if it is no id."""
    value = metadata.get(key)
    if value is None:
        return None
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_integer and value in _NOT_SET:
        return None
    if not is_integer or not 0 <= value < n_vocab:
        raise TokenizerError(f"{key}: expected a token id below {n_vocab:,}, found {_describe(value)}")
    return int(value)


def read_token_ids(metadata: Mapping[str, Any], key: str, n_vocab: int) -> tuple[int, ...]:
    """The token ids at `key`, none if the key is absent. Raises TokenizerError for what is no array of ids."""
    array = _read_array(metadata, key, "iu", "an array of token ids")
    if array is None:
        return ()
    ids: list[int] = array.tolist()
    for index, token_id in enumerate(ids):
        if not 0 <= token_id < n_vocab:
            raise TokenizerError(f"{key}[{index}]: expected a token id below {n_vocab:,}, found {token_id}")
    return tuple(ids)


def read_strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """The string array at `key`. Raises TokenizerError if it is absent or holds anything else."""
    value = metadata.get(key)
    if not isinstance(value, list | StringArray | np.ndarray):
        raise TokenizerError(f"{key}: expected an array of strings, found {_describe(value)}")
    strings: list[str] = value if isinstance(value, list) else value.tolist()
    if kinds := set(map(type, strings)) - {str}:
        raise TokenizerError(f"{key}: expected an array of strings, found {kinds.pop().__name__} in it")
    return strings


def read_numbers(
    metadata: Mapping[str, Any], key: str, dtype: npt.DTypeLike, length: int
) -> npt.NDArray[Any] | None:
    """The numeric array at `key` as `dtype` (length,), or None if it is absent. Raises TokenizerError otherwise."""
    array = _read_array(metadata, key, "iuf", "an array of numbers")
    if array is not None and len(array) != length:
        raise TokenizerError(f"{key}: expected {length:,} values, one per token, found {len(array):,}")
    return None if array is None else array.astype(dtype, copy=False)


def read_bytes(metadata: Mapping[str, Any], key: str) -> bytes | None:
    """The array of bytes at `key`, or None if it is absent. Raises TokenizerError if it is no array of integers."""
    array = _read_array(metadata, key, "iu", "an array of bytes")
    return None if array is None else array.astype(np.uint8).tobytes()


def _read_array(metadata: Mapping[str, Any], key: str, kinds: str, expected: str) -> npt.NDArray[Any] | None:
    """The one-dimensional array at `key`, whose dtype is of one of NumPy's `kinds`; None if it is absent."""
    value = metadata.get(key)
    if value is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:          # arrays of several lengths in an array
        array = np.empty((0, 0))
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise TokenizerError(f"{key}: expected {expected}, found {_describe(value)}")
    return array


def _describe(value: Any) -> str:
    if value is None:
        return "nothing (the key is missing)"
    return f"{type(value).__name__} {value!r:.40}"
