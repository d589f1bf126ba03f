"""The flags of low-rank adapters."""

from typing import Any

import pytest

from ggpy.tools.flags import add_model_flags, model_options
from ggpy.tools.parser import Parser


def lora_of(*argv: str) -> Any:
    """What LLM would be given."""
    parser = Parser(prog="p")
    add_model_flags(parser)
    return model_options(parser.parse(argv))["lora"]


@pytest.mark.parametrize(("argv", "expected"), [
    ([], []),
    (["--lora", "a.gguf,b.gguf"], [("a.gguf", 1), ("b.gguf", 1)]),
    (["--lora-scaled", "a.gguf:0.5,C:/b.gguf:-2"], [("a.gguf", 0.5), ("C:/b.gguf", -2)]),
    (["--lora", "a", "--lora-scaled", "b:0", "--lora", "c"], [("a", 1), ("b", 0), ("c", 1)]),
])
def test_adapters_are_numbered_as_they_are_named(argv: list[str], expected: list[tuple[str, float]]) -> None:
    """Several by commas, and by repeating flags."""
    assert lora_of(*argv) == expected


@pytest.mark.parametrize("text", ["a.gguf", "a.gguf:", ":1", "a.gguf:x", "a.gguf:nan", "a.gguf:1,b.gguf"])
def test_a_scale_that_is_none_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    with pytest.raises(SystemExit) as exit_info:
        lora_of("--lora-scaled", text)
    assert exit_info.value.code == 2
    assert f"--lora-scaled {text}: expected files with scales, such as a.gguf:0.5,b.gguf:2" in capsys.readouterr().err
