"""Arguments of calls, which are what a model has written."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ggpy.server.chat.arguments import read_arguments

MOST = sys.float_info.max


@pytest.mark.parametrize(("text", "arguments"), [
    ('{"a": 1, "b": [2.5, "x"]}', {"a": 1, "b": [2.5, "x"]}),
    ('{"a": 1e999, "b": [-1e999, 3, 0.5], "c": "1e999"}', {"a": MOST, "b": [-MOST, 3, 0.5], "c": "1e999"}),
    pytest.param('{"a": ' + "1" * 5000 + "}", {"a": MOST}, id="digits"),
    pytest.param('{"a": ' + "[" * 100_000, {}, id="nested"),
    pytest.param('{"a": 1e999, "b": ' + "[" * 100_000, {}, id="nested-number"),
    ('{"a": 1e999', {}), ('{"a": ', {}), ("[1e999]", {}), ("7", {}), ("", {}), (" ", {})])
def test_arguments_are_read_as_far_as_they_can_be(text: str, arguments: dict[str, Any]) -> None:
    """A number that nobody can hold takes nothing of the rest."""
    assert read_arguments(text) == arguments
