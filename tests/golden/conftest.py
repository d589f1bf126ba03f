"""Models with their reference results, and what this engine computes of them.

Session fixtures with a parameter: pytest keeps one model's results at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ggpy import LLM
from tests.golden.data import Golden, load_golden
from tests.golden.measure import N_CTX, Measured, measure_all

DEFAULT_MODEL = "smollm2:135m"
SLOW_MODELS = ("gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b")


@pytest.fixture(scope="session", params=[
    DEFAULT_MODEL, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_MODELS)])
def golden(request: pytest.FixtureRequest) -> Golden:
    """Reference results of one model after the other."""
    return load_golden(request.param)


@pytest.fixture(scope="session")
def gguf_path(golden: Golden, model_path: Callable[[str], Path]) -> Path:
    """Where the model lies."""
    return model_path(golden.model)


@pytest.fixture(scope="session")
def llm(gguf_path: Path) -> Iterator[LLM]:
    """The model with default settings."""
    with LLM(gguf_path, n_ctx=N_CTX) as llm:
        yield llm


@pytest.fixture(scope="session")
def default(golden: Golden, llm: LLM) -> Mapping[str, Measured]:
    """The default path on every prompt: int8 activations, keys and values in float16."""
    return measure_all(golden, llm)


@pytest.fixture(scope="session")
def float32(golden: Golden, gguf_path: Path) -> Mapping[str, Measured]:
    """The truth path on every prompt: float32 weights, activations, keys and values."""
    with LLM(gguf_path, n_ctx=N_CTX, compute="f32", cache_type_k="f32", cache_type_v="f32") as llm:
        return measure_all(golden, llm)
