"""Environment variables of `ggpy run`."""

from collections.abc import Callable

import pytest

from ggpy import SamplingParams, cli
from ggpy.tools import environment
from ggpy.tools import run as run_tool
from ggpy.tools.parser import Parser
from tests.tools.echo_llm import EchoLLM

Run = Callable[..., EchoLLM]


def test_variables_are_defaults(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags come before them, the model's wishes behind."""
    for name, value in {"CTX_SIZE": "64", "TOP_K": "3", "TEMPERATURE": "0.5", "OFFLINE": "on", "MODEL": "other",
                        "NO_SHOW_TIMINGS": ""}.items():
        monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    llm = run("m", "x", "--top-k", "4", metadata={"general.sampling.temp": 0.25})
    assert (llm.spec, llm.n_ctx, llm.options["offline"]) == ("m", 64, True)
    assert llm.params == [SamplingParams(top_k=4, temperature=0.5)]
    assert run("-p", "x").spec == "other"


@pytest.mark.parametrize(("name", "value", "message"), [
    ("THREADS", "many", "LLAMA_ARG_THREADS=many: expected a whole number from 1 to 512, or -1"),
    ("TOP_P", "3", "LLAMA_ARG_TOP_P=3: expected a number from 0 to 1"),
    ("CACHE_TYPE_K", "q3", "LLAMA_ARG_CACHE_TYPE_K=q3: expected one of f16, q8_0, f32"),
])
def test_variables_that_cannot_work_are_wrong_usage(
    run: Run, name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named in the message."""
    monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    with pytest.raises(SystemExit) as stop:
        run("m", "x")
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_variable_that_cannot_work_does_not_matter_behind_its_flag(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for --help."""
    monkeypatch.setenv("LLAMA_ARG_TOP_K", "many")
    assert run("m", "x", "--top-k", "4").params == [SamplingParams(top_k=4)]


def test_a_variable_that_is_neither_yes_nor_no_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named in the message."""
    monkeypatch.setenv("LLAMA_ARG_OFFLINE", "perhaps")
    assert cli.main(["run", "m", "x"]) == 2
    assert capsys.readouterr().err == "ggpy run: LLAMA_ARG_OFFLINE=perhaps: expected 1 or 0\n"


def test_variables_that_name_two_models_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no model is named on the command line."""
    monkeypatch.setenv("LLAMA_ARG_MODEL", "a.gguf")
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", "user/b")
    assert cli.main(["run", "-p", "x"]) == 2
    assert "LLAMA_ARG_MODEL=a.gguf and LLAMA_ARG_HF_REPO=user/b name two models" in capsys.readouterr().err


def test_every_variable_has_a_flag() -> None:
    """A renamed flag must not lose its variable."""
    parser = Parser()
    run_tool.add_arguments(parser)
    assert set(environment.VARIABLES) <= set(parser._option_string_actions)
