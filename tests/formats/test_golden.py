"""Formats against bytes that llama.cpp's own quantisers made: see tests/data/quant/README.md."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.formats import dequantize, get_format, quantize
from ggpy.gguf.types import TensorType

DATA = Path(__file__).parents[1] / "data" / "quant"
GOLDEN: dict[str, dict[str, str | None]] = json.loads((DATA / "golden.json").read_text())
DECODABLE = [name for name, entry in GOLDEN.items() if entry["dequantized_sha256"]]
ENCODABLE = [name for name in GOLDEN if get_format(TensorType[name]).quantize]


def sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def arrays() -> dict[str, NDArray[Any]]:
    with np.load(DATA / "golden.npz") as archive:
        return {name: archive[name] for name in archive.files}


def golden_bytes(arrays: dict[str, NDArray[Any]], name: str) -> NDArray[np.uint8]:
    """llama.cpp's bytes of a type: stored, or made here and known to be the same by their hash."""
    rows = arrays[name] if name in arrays else quantize(arrays["matrix"], TensorType[name])
    assert sha256(rows) == GOLDEN[name]["sha256"]
    return rows


@pytest.mark.parametrize("name", ENCODABLE)
def test_quantisers_make_llama_cpp_bytes(arrays: dict[str, NDArray[Any]], name: str) -> None:
    """Rows of zeros, tiny and large weights, ramps and outliers quantise to exactly llama.cpp's bytes."""
    assert sha256(quantize(arrays["matrix"], TensorType[name])) == GOLDEN[name]["sha256"]


@pytest.mark.parametrize("name", DECODABLE)
def test_llama_cpp_bytes_decode_to_the_recorded_weights(arrays: dict[str, NDArray[Any]], name: str) -> None:
    """Every float32 that llama.cpp's bytes stand for, by the hash of all of them."""
    weights = dequantize(golden_bytes(arrays, name), TensorType[name])
    assert sha256(weights) == GOLDEN[name]["dequantized_sha256"]


def test_q1_0_is_the_sign_and_the_mean_magnitude(arrays: dict[str, NDArray[Any]]) -> None:
    """The gguf package cannot decode Q1_0, so what llama.cpp's bytes mean is checked against what they were made of."""
    x = arrays["matrix"][:56].reshape(56, 8, 128)
    w = dequantize(golden_bytes(arrays, "Q1_0"), TensorType.Q1_0)[:56].reshape(x.shape)
    np.testing.assert_array_equal(w > 0, x >= 0)
    np.testing.assert_allclose(np.abs(w), np.abs(x).mean(axis=-1, keepdims=True).repeat(128, -1), rtol=2.0**-10)
