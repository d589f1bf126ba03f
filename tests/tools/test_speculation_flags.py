"""The flags of speculative decoding."""

from typing import Any

import pytest

from ggpy import SpeculationConfig
from ggpy.tools.flags import add_model_flags
from ggpy.tools.llama_flags import add_llama_flags
from ggpy.tools.parser import Parser
from ggpy.tools.speculation_flags import add_speculation_flags, speculation_options


def options_of(*argv: str) -> dict[str, Any]:
    """What LLM would be given."""
    parser = Parser(prog="p")
    add_model_flags(parser)
    add_speculation_flags(parser)
    add_llama_flags(parser)
    return speculation_options(parser.parse(argv))


@pytest.mark.parametrize(("argv", "draft_model", "expected"), [
    ([], None, SpeculationConfig()),
    (["--spec-type", "none"], None, SpeculationConfig(proposers=())),
    (["--spec-type", "ngram-mod"], None, SpeculationConfig(proposers=("ngram", "past"))),
    (["--spec-type", "draft-simple", "-md", "a.gguf"], "a.gguf", SpeculationConfig(proposers=("draft",))),
    (["--spec-type", "ngram-map-k,draft-simple,ngram-cache", "-hfd", "user/repo:Q8_0"], "hf:user/repo:Q8_0",
     SpeculationConfig()),
    (["--draft-max", "5", "--spec-draft-n-min", "2", "--draft-p-min", "0.75"], None,
     SpeculationConfig(n_max=5, n_min=2, p_min=0.75)),
])
def test_flags_are_settings(argv: list[str], draft_model: str | None, expected: SpeculationConfig) -> None:
    """All that llama.cpp calls ngram-something means the same here."""
    assert options_of(*argv) == {"draft_model": draft_model, "speculation": expected}


@pytest.mark.parametrize(("argv", "message"), [
    (["--spec-type", "draft-mtp"], "--spec-type draft-mtp: expected some of none, draft-simple, ngram-simple"),
    (["--spec-type", "draft-simple"], "--spec-type draft-simple: expected -md, the model that drafts"),
    (["--spec-draft-n-max", "0"], "--spec-draft-n-max 0: expected a whole number from 1 to 256"),
    (["--draft-min", "16"], "--spec-draft-n-min 16: expected at most 15, as --spec-draft-n-max has it"),
    (["--draft-p-min", "2"], "--draft-p-min 2: expected a probability, 0 to 1"),
    (["--draft-p-min", "nan"], "--draft-p-min nan: expected a probability, 0 to 1"),
])
def test_wrong_values_are_usage_errors(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    with pytest.raises(SystemExit) as exit_info:
        options_of(*argv)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_lengths_of_matches_are_taken_without_effect(capsys: pytest.CaptureFixture[str]) -> None:
    """They follow from how drafts fare; scripts that set them go on running."""
    assert options_of("--spec-ngram-mod-n-match", "24")["speculation"] == SpeculationConfig()
    assert "--spec-ngram-mod-n-match has no effect" in capsys.readouterr().err
