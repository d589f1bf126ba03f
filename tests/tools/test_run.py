"""`ggpy run`, with an LLM that echoes."""

import argparse
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from ggpy import Completion, SamplingParams, Timings, cli
from ggpy.errors import ConfigError, PromptTooLongError
from ggpy.tools import catalogue, flags, loading


class EchoStream:
    """Answers with the words of a text, one by one; "^C" among them is the user's interrupt."""

    def __init__(self, text: str) -> None:
        self.pieces = [word + " " for word in text.split()]
        self.said = ""
        self.is_closed = False

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            if piece == "^C ":
                raise KeyboardInterrupt
            self.said += piece
            yield piece

    def finish(self) -> Completion:
        list(self)
        return self.completion

    def close(self) -> None:
        self.is_closed = True

    @property
    def completion(self) -> Completion:
        return Completion(self.said, [1, 2, 3], "length", 5, 0, Timings(5, 3, prompt_s=0.5, generation_s=0.25))


class EchoLLM:
    """Says what it was asked; remembers how it was loaded and asked."""

    n_ctx = 4096

    def __init__(self, spec: str, metadata: dict[str, Any], options: dict[str, Any]) -> None:
        self.spec, self.metadata, self.options = spec, metadata, options
        self.asked: list[str | list[dict[str, str]]] = []
        self.params: list[SamplingParams] = []

    has_chat_template = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stream(self, prompt: str, params: SamplingParams) -> EchoStream:
        if prompt == "too long":
            raise PromptTooLongError("the prompt has 9,000 tokens but the context holds 4,096")
        self.asked.append(prompt)
        self.params.append(params)
        return EchoStream(prompt)

    def stream_chat(self, messages: Sequence[dict[str, str]], params: SamplingParams) -> EchoStream:
        stream = self.stream(messages[-1]["content"], params)
        self.asked[-1] = list(messages)
        return stream


Run = Callable[..., EchoLLM]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ggpy run ...` with `stdin`, or on a terminal where `lines` are typed; returns the LLM it loaded."""
    def call(*argv: str, stdin: str = "", lines: Sequence[str] | None = None, template: bool = True,
             code: int = 0, metadata: dict[str, Any] | None = None) -> EchoLLM:
        loaded: list[EchoLLM] = []

        def load(spec: str, **options: Any) -> EchoLLM:
            loaded.append(EchoLLM(spec, metadata or {}, options))
            monkeypatch.setattr(loaded[0], "has_chat_template", template)
            return loaded[-1]

        typed = iter(lines or ())

        def type_line(prompt: str) -> str:
            line = next(typed, None)
            if line is None:
                raise EOFError
            if line == "^C":
                raise KeyboardInterrupt
            return line

        monkeypatch.setattr(loading, "load", load)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr(sys.stdin, "isatty", lambda: lines is not None, raising=False)
        monkeypatch.setattr("builtins.input", type_line)
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
    assert output.err == "[prompt 5 tokens, 10.0/s; answer 3 tokens, 8.0/s, ended by length]\n"


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
    """It says so and goes on; a single prompt fails."""
    llm = run("m", "--raw", lines=["too long", "short"])
    assert llm.asked == ["short"]
    assert "9,000 tokens but the context holds 4,096; /clear forgets" in capsys.readouterr().err
    run("m", "too long", code=1)


def test_a_terminal_gets_no_control_characters(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model could move the cursor; a file gets what the model said."""
    run("m", "\x1b[2Jx")
    assert capsys.readouterr().out == "\x1b[2Jx \n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run("m", "\x1b[2Jx")
    assert capsys.readouterr().out == "\ufffd[2Jx \n"


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
    default = {"n_ctx": None, "n_threads": None, "max_batch_tokens": 512, "repack": "auto", "compute": "int8",
               "kv_type": "f16"}
    assert run("m", "x").options == default
    options = run("m", "x", "-c", "99", "-t", "3", "-b", "64", "--repack", "off", "-ctk", "f32").options
    assert options == default | {
        "n_ctx": 99, "n_threads": 3, "max_batch_tokens": 64, "repack": "off", "kv_type": "f32"}


def test_every_sampling_parameter_has_a_flag() -> None:
    """A new field must not be forgotten here."""
    parser = argparse.ArgumentParser()
    flags.add_sampling_flags(parser)
    assert flags.sampling_params(parser.parse_args([]), {}) == SamplingParams()
    with pytest.raises(ConfigError, match="top_p=3"):
        flags.sampling_params(parser.parse_args(["--top-p", "3"]), {})


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
