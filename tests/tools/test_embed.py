"""`ggpy embed`, with the vectors of a model that is not there."""

import io
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy import cli
from ggpy.tools import loading


class Lengths:
    """Vectors that tell how they were asked for."""

    def embed(self, texts: Sequence[str], *, pooling: str | None, normalize: bool) -> NDArray[np.float32]:
        return np.array([[len(text), {None: 0, "cls": 1}[pooling], normalize, 0.1] for text in texts], np.float32)

    def rerank(self, query: str, documents: Sequence[str]) -> NDArray[np.float32]:
        return np.array([len(query) * len(document) for document in documents], np.float32)


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has Lengths loaded; gets the options that it is loaded with."""
    loaded: dict[str, Any] = {}

    def load(spec: str, **options: Any) -> Any:
        loaded.update(options, spec=spec)
        return nullcontext(Lengths())

    monkeypatch.setattr(loading, "load", load)
    return loaded


def test_each_text_is_a_line_of_json(lengths: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers have as many digits as they need."""
    assert cli.main(["embed", "model.gguf", "a", "abc", "-ub", "64"]) == 0
    assert capsys.readouterr().out == "[1.0, 0.0, 1.0, 0.1]\n[3.0, 0.0, 1.0, 0.1]\n"
    assert (lengths["spec"], lengths["max_batch_tokens"]) == ("model.gguf", 64)


def test_lines_of_stdin_are_texts(lengths: dict[str, Any], capsys: pytest.CaptureFixture[str],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their ends; flags say what becomes of them."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab\r\nabcd"))
    assert cli.main(["embed", "model.gguf", "--pooling", "cls", "--no-normalize"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [[2, 1, 0, 0.1], [4, 1, 0, 0.1]]


def test_a_query_ranks(lengths: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """One number for each text, in their order."""
    assert cli.main(["embed", "model.gguf", "--query", "ab", "a", "abc"]) == 0
    assert capsys.readouterr().out == "2.0\n6.0\n"
