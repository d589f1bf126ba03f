"""`ggpy run`, with an LLM that echoes."""

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ggpy import SamplingParams, cli
from ggpy.errors import ConfigError
from ggpy.hub import catalogue
from ggpy.text.chat import CHATML
from ggpy.tools import chat_session, environment, flags, loading
from ggpy.tools import run as run_tool
from tests.tools.echo_llm import EchoLLM
from tests.tools.file_metadata import file_metadata

Run = Callable[..., EchoLLM]


class TypedLines:
    """A terminal's stdin where lines are typed, "^C" for an interrupt."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = iter(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        line = next(self.lines, None)
        if line == "^C":
            raise KeyboardInterrupt
        return "" if line is None else line + "\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ggpy run ...` with `stdin`, or on a terminal where `lines` are typed; returns the LLM it loaded."""
    def call(*argv: str, stdin: str = "", lines: Sequence[str] | None = None, template: bool = True,
             code: int = 0, metadata: dict[str, Any] | None = None) -> EchoLLM:
        loaded: list[EchoLLM] = []

        def load(spec: str, **options: Any) -> EchoLLM:
            known = {"tokenizer.chat_template": CHATML} if template else {}
            loaded.append(EchoLLM(spec, known | (metadata or {}), options))
            return loaded[-1]

        monkeypatch.setattr(loading, "load", load)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())) if lines is None
                            else TypedLines(lines))
        monkeypatch.setattr(chat_session, "hidden_keys", contextlib.nullcontext)
        assert cli.main(["run", *argv]) == code
        return loaded[0]

    return call


def test_a_prompt_is_answered_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer alone on stdout, its speed on stderr."""
    llm = run("smollm2", "Why is the sky blue?")
    assert llm.spec == "smollm2"
    assert llm.asked == [[{"role": "user", "content": "Why is the sky blue?"}]]
    output = capsys.readouterr()
    assert output.out == "Why is the sky blue? \n"
    assert output.err == "[prompt 39 tokens, 78.0/s; answer 22 tokens, 84.0/s]\n"


@pytest.mark.parametrize(("argv", "stdin", "prompt"), [
    (["m", "two", "words"], "", "two words"),
    (["m", "--temp", "0", "after flags"], "", "after flags"),
    (["-n", "3", "m", "-s", "1", "between flags", "-t", "2"], "", "between flags"),
    (["-m", "m", "the model as a flag"], "", "the model as a flag"),
    (["m", "-p", r"a\nb\\n"], "", "a\nb\\n"),
    (["m", "-p", r"a\nb", "--no-escape"], "", r"a\nb"),
    (["m", r"C:\new"], "", r"C:\new"),
    (["m"], "piped\n", "piped"),
    (["m", "Summarise:"], "long text\n", "Summarise:\n\nlong text"),
])
def test_where_the_prompt_comes_from(run: Run, argv: list[str], stdin: str, prompt: str) -> None:
    """Words, flags or a pipe; what is piped in stands behind the rest."""
    assert run(*argv, stdin=stdin).asked == [[{"role": "user", "content": prompt}]]


def test_a_prompt_may_lie_in_a_file(run: Run, tmp_path: Path) -> None:
    """Without the newline at its end."""
    (tmp_path / "prompt.txt").write_text("from a file\n", encoding="utf-8")
    assert run("m", "-f", str(tmp_path / "prompt.txt"), "--raw").asked == ["from a file"]


def test_a_system_prompt_stands_in_front(run: Run) -> None:
    """Its escapes are read, as in -p."""
    llm = run("m", "Hello", "-sys", r"Be\tbrief")
    assert llm.asked == [[{"role": "system", "content": "Be\tbrief"}, {"role": "user", "content": "Hello"}]]


@pytest.mark.parametrize(("argv", "template"), [(["--raw"], True), (["-no-cnv"], True), ([], False)])
def test_raw_prompts_go_without_a_template(run: Run, argv: list[str], template: bool) -> None:
    """On request, and with models that have none."""
    assert run("m", "Once upon", *argv, template=template).asked == ["Once upon"]


@pytest.mark.parametrize(("argv", "message"), [
    ([], "there is no MODEL"),
    (["m", "a", "-p", "b"], "there is more than one prompt"),
    (["m"], "PROMPT is missing and stdin is empty"),
    (["m", "a", "--temp", "hot"], "invalid float value: 'hot'"),
    (["m", "a", "--temperatur", "1"], "unrecognized arguments: --temperatur"),
])
def test_wrong_usage_exits_with_2(
    run: Run, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any model is loaded."""
    with pytest.raises(SystemExit) as stop:
        run(*argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_conversation_remembers(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Until /clear; /bye ends it."""
    llm = run("m", "-sys", "S", "--no-show-timings", lines=["one", "", "two", "/clear", "three", "/bye", "four"])
    system = {"role": "system", "content": "S"}
    one, said_one = {"role": "user", "content": "one"}, {"role": "assistant", "content": "one "}
    two, three = {"role": "user", "content": "two"}, {"role": "user", "content": "three"}
    assert llm.asked == [[system, one], [system, one, said_one, two], [system, three]]
    assert capsys.readouterr().out == "one \ntwo \nthree \n"


def test_ctrl_c_stops_an_answer_not_the_conversation(run: Run) -> None:
    """What was said stays in the history; at the prompt Ctrl-C says how to leave; the end of input leaves."""
    llm = run("m", lines=["a b ^C c", "^C", "next"])
    assert llm.asked[-1] == [
        {"role": "user", "content": "a b ^C c"}, {"role": "assistant", "content": "a b "},
        {"role": "user", "content": "next"}]


def test_ctrl_c_in_a_single_answer_ends_the_command(run: Run) -> None:
    """With the exit code of an interrupted program."""
    run("m", "a ^C", code=130)


def test_a_conversation_survives_a_prompt_that_is_too_long(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """It names both sizes and the ways out, and goes on; a single prompt fails."""
    llm = run("m", "-c", "80", "--no-show-timings", lines=["short", "x" * 99, "/clear", "y" * 99, "/set n 1", "z"])
    assert [messages[-1]["content"] for messages in llm.asked if isinstance(messages, list)] == ["short", "z"]
    errors = capsys.readouterr().err
    assert ("the context is full: 150 tokens, but it holds 80, the answer included\n/undo takes back the last "
            "exchange, /clear forgets all, `-c 300` at the start makes it larger") in errors
    assert "it holds 80, the answer included\nshorten the message, or `-c 236` at the start" in errors
    run("m", "x" * 99, "-c", "80", code=1)


def test_a_terminal_gets_no_control_characters(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model could move the cursor; a file gets what the model said."""
    run("m", "\x1b[2Jx")
    assert capsys.readouterr().out == "\x1b[2Jx \n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run("m", "\x1b[2Jx", "--simple-io")
    assert capsys.readouterr().out == "\ufffd[2Jx \n"
    run("m", "\x1b[2Jx")
    assert "\ufffd[2Jx" in capsys.readouterr().out


@pytest.mark.parametrize(("argv", "metadata", "expected"), [
    ([], {}, SamplingParams()),
    (["--temp", "0.5", "--top-k", "3", "-s", "7", "-n", "9"], {},
     SamplingParams(temperature=0.5, top_k=3, seed=7, max_tokens=9)),
    (["-s", "-1", "-n", "-1", "--repeat-last-n", "-1", "--temp", "-1", "--top-k", "-1"], {},
     SamplingParams(repeat_last_n=None, temperature=0, top_k=0)),
    ([], {"general.sampling.temp": 0.25, "general.sampling.penalty_last_n": -1},
     SamplingParams(temperature=0.25, repeat_last_n=None)),
    (["--temp", "0.5"], {"general.sampling.temp": 0.25}, SamplingParams(temperature=0.5)),
    (["-r", "A", "-r", "B", "--ignore-eos"], {}, SamplingParams(stop=("A", "B"), ignore_eos=True)),
])
def test_sampling_flags(run: Run, argv: list[str], metadata: dict[str, Any], expected: SamplingParams) -> None:
    """Flags, then the model's own wishes, then llama.cpp's defaults; its -1 is translated."""
    assert run("m", "x", *argv, metadata=metadata).params == [expected]


def test_model_flags(run: Run) -> None:
    """llama.cpp's 0 and -1 are translated to None; the smaller batch size counts."""
    default = {"offline": False, "n_ctx": None, "n_threads": None, "max_batch_tokens": 512, "repack": "auto",
               "compute": "int8", "kv_type": "f16"}
    assert run("m", "x").options == default
    options = run("m", "x", "-c", "99", "-t", "3", "-b", "64", "--repack", "off", "-ctk", "f32").options
    assert options == default | {
        "n_ctx": 99, "n_threads": 3, "max_batch_tokens": 64, "repack": "off", "kv_type": "f32"}


def test_every_sampling_parameter_has_a_flag() -> None:
    """A new field must not be forgotten here."""
    parser = argparse.ArgumentParser()
    flags.add_sampling_flags(parser)
    assert flags.sampling_params(parser.parse_args([]), file_metadata({})) == SamplingParams()
    with pytest.raises(ConfigError, match="top_p=3"):
        flags.sampling_params(parser.parse_args(["--top-p", "3"]), file_metadata({}))


def test_kernels_are_announced_once_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A log does not fill with progress."""
    with loading.KernelProgress("loading m") as progress:
        for i in range(3):
            progress.update(f"kernel{i}", i + 1, 3)
    assert capsys.readouterr().err == "preparing 3 kernels; they are kept for the next time\n"


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `ggpy warm` loads and closes."""
    events: list[str] = []

    class Loaded:
        def __init__(self, spec: str, **options: Any) -> None:
            self.spec = spec
            events.append(f"load {spec} {options['compute']}")

        def close(self) -> None:
            events.append(f"close {self.spec}")

    monkeypatch.setattr(loading, "load", Loaded)
    return events


def test_warm_loads_every_model_and_closes_it(warmed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Loading compiles what is missing."""
    assert cli.main(["warm", "a", "b", "--compute", "f32"]) == 0
    assert warmed == ["load a f32", "close a", "load b f32", "close b"]
    assert capsys.readouterr().out == "a is ready\nb is ready\n"


def test_warm_takes_all_pulled_models_where_none_is_named(
    warmed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any, it says what to do."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    assert cli.main(["warm"]) == 1
    assert "no model has been pulled yet" in capsys.readouterr().err
    entry = catalogue.CATALOGUE[0]
    entry.folder.mkdir(parents=True)
    with entry.path.open("wb") as file:
        file.truncate(entry.size_bytes)     # told by its size
    assert cli.main(["warm"]) == 0
    assert warmed == [f"load {entry.name} int8", f"close {entry.name}"]


def test_json_is_an_object_for_each_answer(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """On a line of its own; a pipe with -cnv holds a message in each line."""
    run("m", "--json", "-cnv", stdin="one\n/undo\ntwo \\\nthree\n")
    output = capsys.readouterr()
    first, second = map(json.loads, output.out.splitlines())
    assert (first["text"], second["text"]) == ("one ", "two \nthree")
    assert first == {
        "text": "one ", "tokens": [*b"one ", 257], "finish_reason": "stop", "n_prompt": 22, "n_cached": 0,
        "n_generated": 5, "timings": {"prompt_s": 0.5, "generation_s": 0.25, "prompt_tokens_per_s": 44.0,
                                      "tokens_per_s": 16.0}}
    assert second["n_cached"] == 6      # what both begin with
    assert output.err == "took back: one\n"


def test_a_conversation_from_a_pipe_fails_with_its_first_error(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is there to do better."""
    llm = run("m", "-cnv", stdin="one\n/undo\n/undo\ntwo\n", code=1)
    assert len(llm.asked) == 1
    assert "ggpy: error: nothing has been said yet" in capsys.readouterr().err


def test_a_single_turn_leaves_after_its_answer(run: Run) -> None:
    """Commands are no turn."""
    assert run("m", "-st", lines=["/help", "one", "two"]).asked == [[{"role": "user", "content": "one"}]]


def test_a_conversation_may_begin_with_the_prompt(run: Run) -> None:
    """With -cnv, as in llama.cpp."""
    llm = run("m", "-cnv", "-p", "one", lines=["two"])
    assert llm.asked[-1] == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one "},
                             {"role": "user", "content": "two"}]


def test_other_chat_templates(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By their source or from a file; a name is refused but for chatml."""
    (tmp_path / "t").write_text("F:{{ messages[0].content }}", encoding="utf-8")
    assert run("m", "x", "--chat-template", "T:{{ messages[0].content }}").asked == ["T:x"]
    assert run("m", "x", "--chat-template-file", str(tmp_path / "t"), template=False).asked == ["F:x"]
    assert run("m", "x", "--chat-template", "chatml", template=False).asked == [[{"role": "user", "content": "x"}]]
    run("m", "x", "--chat-template", "zephyr", code=1)
    assert "--chat-template zephyr: expected chatml or a Jinja template" in capsys.readouterr().err


def test_variables_of_the_chat_template(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Any JSON object."""
    assert run("m", "x", "--chat-template", "{{ a }}{{ b[0] }}", "--chat-template-kwargs",
               '{"a": "A", "b": [1]}').asked == ["A1"]
    for text, message in (("{", "is not JSON"), ("[]", "expected a JSON object")):
        with pytest.raises(SystemExit):
            run("m", "x", "--chat-template-kwargs", text)
        assert message in capsys.readouterr().err


def test_prompts_can_be_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Their tokens on stderr, or, raw, their text in front of the answer."""
    run("m", "ab!", "--raw", "--verbose-prompt", "--display-prompt", "--no-show-timings")
    assert capsys.readouterr() == ("ab!ab! \n", "   258 -> 'ab'\n    33 -> '!'\n")


def test_system_prompts_may_lie_in_a_file(run: Run, tmp_path: Path) -> None:
    """Taken literally."""
    (tmp_path / "s").write_text("Be\\nbrief\n", encoding="utf-8")
    assert run("m", "x", "-sysf", str(tmp_path / "s")).asked[0][0] == {"role": "system", "content": "Be\\nbrief"}


def test_flags_for_what_ggpy_does_anyway(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts for llama.cpp run; what a user could miss is said."""
    run("m", "x", "--jinja", "-mli", "-fa", "on", "-ngl", "99", "--no-display-prompt", "--no-show-timings")
    assert capsys.readouterr().err == "ggpy: -ngl has no effect\n"


def test_underscores_in_flags_are_hyphens(run: Run) -> None:
    """As in llama.cpp; values keep theirs."""
    llm = run("m", "x_y", "--ctx_size", "99", "--top_k=7")
    assert (llm.n_ctx, llm.params[0].top_k, llm.asked) == (99, 7, [[{"role": "user", "content": "x_y"}]])


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
    ("THREADS", "many", "LLAMA_ARG_THREADS=many: invalid literal"),
    ("CACHE_TYPE_K", "q3", "LLAMA_ARG_CACHE_TYPE_K=q3: expected one of f16, f32"),
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


def test_every_variable_has_a_flag() -> None:
    """A renamed flag must not lose its variable."""
    parser = argparse.ArgumentParser()
    run_tool.add_arguments(parser)
    assert set(environment.VARIABLES) <= set(vars(parser.parse_args([])))


def test_a_prompt_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    """Which file, and where it stops being text."""
    from ggpy.errors import ConfigError
    from ggpy.tools.run import read_file

    path = tmp_path / "prompt"
    path.write_bytes(b"abc\xff")
    with pytest.raises(ConfigError, match=r"prompt: byte 3 is not UTF-8 text"):
        read_file(str(path))
