"""`ggpy run`, with an LLM that echoes."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy import Completion, SamplingParams, SpeculationConfig, Timings, cli
from ggpy.tools import chat_session, flags, loading
from ggpy.tools.parser import Parser
from tests.tools.echo_llm import EchoLLM
from tests.tools.file_metadata import file_metadata

Run = Callable[..., EchoLLM]


def test_a_prompt_is_answered_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer alone on stdout, its speed on stderr."""
    llm = run("smollm2", "Why is the sky blue?")
    assert llm.spec == "smollm2"
    assert llm.asked == [[{"role": "user", "content": "Why is the sky blue?"}]]
    output = capsys.readouterr()
    assert output.out == "Why is the sky blue? \n"
    assert output.err == "[prompt 39 tokens, 78.0/s; answer 22 tokens, 84.0/s]\n"


def test_the_speed_of_one_token_is_not_told() -> None:
    """The first token comes from reading the prompt, so nothing was measured."""
    completion = Completion("x", [7], "length", Timings(1, 1, prompt_s=0.5, generation_s=0.0))
    assert chat_session.timing_line(completion) == "[prompt 1 token, 2.0/s; answer 1 token, ended by length]"


def test_drafts_are_told() -> None:
    """How many of the tokens that were guessed were right."""
    timings = Timings(10, 4, prompt_s=1 / 3, generation_s=2 / 3, n_drafted=5, n_accepted=2)
    completion = Completion("x", [7, 8, 9, 1], "stop", timings)
    assert chat_session.timing_line(completion) == "[prompt 10 tokens, 30.0/s; answer 4 tokens, 4.5/s, 2 of 5 drafts]"
    shown = chat_session.as_json(completion)
    assert (shown["n_drafted"], shown["n_accepted"]) == (5, 2)
    assert shown["timings"] == {"prompt_s": 0.333333, "generation_s": 0.666667, "prompt_tokens_per_s": 30.0,
                                "tokens_per_s": 4.5}


@pytest.mark.parametrize(("argv", "stdin", "prompt"), [
    (["m", "two", "words"], "", "two words"),
    (["m", "--temp", "0", "after flags"], "", "after flags"),
    (["m", "-p", "-x"], "", "-x"),
    (["m", "--", "-x"], "", "-x"),
    (["m", "-fa", "off and on"], "", "off and on"),
    (["-m", "m", "--", "smollm"], "", "smollm"),
    (["-m", "m", "-p", "smollm2"], "", "smollm2"),
    (["-m", "m", "long " * 500 + "word"], "", "long " * 500 + "word"),
    (["-m", "m", __file__], "", __file__),
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


@pytest.mark.parametrize("argv", [["-f", "FILE", "Summarise:"], ["Summarise:", "-bf", "FILE"],
                                  ["-p", "Summarise:", "-f", "FILE"]])
def test_a_file_stands_behind_the_words(run: Run, tmp_path: Path, argv: list[str]) -> None:
    """As what is piped in does, which comes last; wherever the flag stands."""
    (tmp_path / "notes.txt").write_text("some notes", encoding="utf-8")
    argv = [str(tmp_path / "notes.txt") if word == "FILE" else word for word in argv]
    assert run("m", "--raw", *argv, stdin="and more\n").asked == ["Summarise:\n\nsome notes\n\nand more"]


def test_a_system_prompt_stands_in_front(run: Run) -> None:
    """Its escapes are read, as in -p."""
    llm = run("m", "Hello", "-sys", r"Be\tbrief")
    assert llm.asked == [[{"role": "system", "content": "Be\tbrief"}, {"role": "user", "content": "Hello"}]]


@pytest.mark.parametrize(("argv", "template"), [(["--raw"], True), (["-no-cnv"], True), ([], False)])
def test_raw_prompts_go_without_a_template(run: Run, argv: list[str], template: bool) -> None:
    """On request, and with models that have none."""
    assert run("m", "Once upon", *argv, template=template).asked == ["Once upon"]


@pytest.mark.parametrize(("argv", "message"), [
    ([], "there is no MODEL; `ggpy list` shows those that have a name"),
    (["Why is it dark?"], "Why is it dark? is the first word, so it should be the MODEL; `ggpy list` shows those that "
     "have a name, and -p gives the prompt where LLAMA_ARG_MODEL names the model"),
    (["smollm2", "-m", "gemma3", "hi"], "there are two models, smollm2 and gemma3; give one, and a prompt that looks "
     "like one as -p"),
    (["-hf", "a/b", "dir/x.gguf", "hi"], "there are two models, dir/x.gguf and hf:a/b; give one, and a prompt that "
     "looks like one as -p"),
    (["-m", "a", "-hf", "a/b", "hi"], "-m a and -hf hf:a/b are two models; give one"),
    (["-hf", "user", "hi"], "-hf user: expected user/repo or user/repo:QUANT"),
    (["m", "-hff", "f.gguf", "hi"], "-hff needs -hf, the repository that the file is in"),
    (["m", "a", "-p", "b"], "there are two prompts, PROMPT and -p; give one"),
    (["m", "-f", __file__, "-bf", __file__], "there are two files with a prompt, -f and -bf; give one"),
    (["m"], "there is no prompt: PROMPT is missing and stdin is empty"),
    (["m", "a", "-sys", "S", "-sysf", __file__], "there are two system prompts, -sys and -sysf; give one"),
    (["m", "a", "--raw", "-sys", "S"], "-sys needs a chat template, and --raw goes without; put all text into the "
     "prompt"),
    (["m", "a", "-no-cnv", "--chat-template", "chatml"], "--chat-template and -no-cnv exclude each other"),
    (["m", "a", "--raw", "--chat-template-kwargs", "{}"], "--chat-template-kwargs and --raw exclude each other"),
    (["m", "a", "--in-suffix", "x", "--chat-template", "chatml"], "--chat-template and --in-suffix exclude each other"),
    (["m", "a", "--temp", "hot"], "--temp hot: expected a number"),
    (["m", "a", "--step-ms", "-1"], "--step-ms -1: expected milliseconds, or 0 for steps of any length"),
    (["m", "a", "--cache-audit", "2/3"], "--cache-audit 2/3: expected a part such as 1/100, or 1/1 for all"),
    (["m", "a", "--step-ms", "soon"], "--step-ms soon: expected a number of milliseconds"),
    (["m", "a", "-o", "no/such/file"], "-o no/such/file: there is no folder no/such"),
    (["m", "a", "-o", "/"], "-o /: this is a folder; expected a file"),
    (["m", "a", "-c", "1"], "-c 1: expected a whole number of at least 2, or 0"),
    (["m", "a", "-c", "64", "--pool-tokens", "32"], "--pool-tokens 32: expected at least 64, as -c has it"),
    (["m", "a", "-t", "513"], "-t 513: expected a whole number from 1 to 512, or -1"),
    (["m", "-p"], "-p needs a value: TEXT"),
    (["m", "a", "-temp", "1"], "there is no flag -temp (did you mean --temp?)"),
    (["m", "a", "-tmp=1"], "there is no flag -tmp (did you mean --temp?)"),
    (["m", "a", "--raw=1"], "--raw takes no value"),
    (["m", "a", "--color=pink"], "--color pink: expected one of on, off, auto"),
    (["m", "a", "-t4"], "-t4: a flag and its value are two words, -t 4"),
    (["m", "a", "-j", "{}", "--grammar", "x"], "--grammar and -j exclude each other"),
    (["m", "a", "--control-vector", "x"], "--control-vector is not supported yet (ggpy has no control vectors)"),
    (["m", "-f", "no/such/file"], "-f no/such/file: No such file or directory"),
    (["m", "a", "--chat-template", "{{ x"], "--chat-template {{ x: the template, line 1: unexpected end of template, "
     "expected 'end of print statement'."),
    (["m", "a", "--chat-template-kwargs", "[]"], "--chat-template-kwargs []: expected a JSON object"),
])
def test_wrong_usage_exits_with_2(
    run: Run, argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any model is looked for, with one line."""
    monkeypatch.delenv("LLAMA_ARG_MODEL", raising=False)
    with pytest.raises(SystemExit) as stop:
        run(*argv)
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"ggpy run: {message}; see ggpy run --help\n"


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
    assert ("the conversation is too long for this message: 150 tokens, but the context holds 80, the answer included\n"
            "/undo takes back the last exchange, /clear forgets all, `-c 300` at the start makes it larger") in errors
    assert ("the message is too long: 118 tokens, but the context holds 80, the answer included\n"
            "shorten the message, or `-c 236` at the start") in errors
    run("m", "-c", "81", "--no-show-timings", lines=["x" * 30])
    assert "the context is full: the conversation has all of its 81 tokens\n/undo takes" in capsys.readouterr().err
    run("m", "x" * 99, "-c", "80", code=1)


def test_no_context_beyond_the_trained_length_is_advised(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A larger one would make no sense of what lies beyond it."""
    trained = {"general.architecture": "llama", "llama.context_length": 200}
    run("m", "-c", "80", "--no-show-timings", lines=["x" * 99], metadata=trained)
    assert "shorten the message, or `-c 200` at the start makes it larger" in capsys.readouterr().err
    run("m", "-c", "80", "--no-show-timings", lines=["x" * 99], metadata=trained | {"llama.context_length": 80})
    assert ("shorten the message: the model was trained for 80 tokens, so a larger context is of no use"
            in capsys.readouterr().err)
    run("m", "-c", "80", "--no-show-timings", lines=["x" * 199], metadata=trained)
    assert "shorten the message: the model was trained for 200 tokens" in capsys.readouterr().err


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
    (["-s", "-1", "-n", "-1", "--repeat-last-n", "-1", "--temp", "0", "--top-k", "-1"], {},
     SamplingParams(repeat_last_n=None, temperature=0, top_k=0)),
    ([], {"general.sampling.temp": 0.25, "general.sampling.penalty_last_n": -1},
     SamplingParams(temperature=0.25, repeat_last_n=None)),
    (["--temp", "0.5"], {"general.sampling.temp": 0.25}, SamplingParams(temperature=0.5)),
    (["-r", r"A\n", "-r", "B", "--ignore-eos"], {}, SamplingParams(stop=("A\n", "B"), ignore_eos=True)),
    (["-r", r"A\n", "--no-escape"], {}, SamplingParams(stop=(r"A\n",))),
])
def test_sampling_flags(run: Run, argv: list[str], metadata: dict[str, Any], expected: SamplingParams) -> None:
    """Flags, then the model's own wishes, then llama.cpp's defaults; its -1 is translated."""
    assert run("m", "x", *argv, metadata=metadata).params == [expected]


def test_model_flags(run: Run) -> None:
    """llama.cpp's 0 and -1 are translated to None; the smaller batch size counts."""
    default: dict[str, Any] = {
        "offline": False, "n_ctx": None, "pool_tokens": None, "n_threads": None, "max_batch_tokens": 512,
        "repack": "auto", "compute": "int8", "cache_type_k": "f16", "cache_type_v": "f16", "step_ms": 75,
        "cache_audit": 0, "lora": [], "draft_model": None, "speculation": SpeculationConfig()}
    assert run("m", "x").options == default
    options = run("m", "x", "-c", "99", "--pool-tokens", "128", "-t", "3", "-b", "64", "-nr",
                  "-ctk", "f32", "-ctv", "q8_0", "--step-ms", "12.5", "--cache-audit", "1/50").options
    assert options == default | {
        "n_ctx": 99, "pool_tokens": 128, "n_threads": 3, "max_batch_tokens": 64, "repack": "off",
        "cache_type_k": "f32", "cache_type_v": "q8_0", "step_ms": 12.5, "cache_audit": 50}


def test_every_sampling_parameter_has_a_flag() -> None:
    """A new field must not be forgotten here."""
    parser = Parser()
    flags.add_sampling_flags(parser)
    assert flags.sampling_params(parser.parse([]), file_metadata({})) == SamplingParams()


def test_kernels_are_announced_once_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A log does not fill with progress."""
    with loading.KernelProgress("loading m") as progress:
        for i in range(3):
            progress.update(f"kernel{i}", i + 1, 3)
    assert capsys.readouterr().err == "loading m: preparing 3 kernels; they are kept for the next time\n"


def test_json_is_an_object_for_each_answer(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """On a line of its own; a pipe with -cnv holds a message in each line."""
    run("m", "--json", "-cnv", stdin="one\n/undo\ntwo \\\nthree\n")
    output = capsys.readouterr()
    first, second = map(json.loads, output.out.splitlines())
    assert (first["text"], second["text"]) == ("one ", "two \nthree")
    assert first == {
        "text": "one ", "tokens": [*b"one ", 257], "finish_reason": "stop", "n_prompt": 22, "n_cached": 0,
        "n_generated": 5, "n_drafted": 0, "n_accepted": 0, "seed": 7, "timings": {
            "prompt_s": 0.5, "generation_s": 0.25, "prompt_tokens_per_s": 44.0, "tokens_per_s": 16.0}}
    assert second["n_cached"] == 6      # what both begin with
    assert output.err == "took back: one\n"


def test_a_conversation_from_a_pipe_fails_with_its_first_error(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is there to do better."""
    llm = run("m", "-cnv", stdin="one\n/undo\n/undo\ntwo\n", code=1)
    assert len(llm.asked) == 1
    assert "ggpy run: nothing has been said yet" in capsys.readouterr().err


@pytest.mark.parametrize(("stdin", "message"), [
    ("one \\\ntwo\\", "one \ntwo"), ("one\\\n", "one"), ("'''one\ntwo", "one\ntwo"), ('"""one\n', "one"),
    ("'''one\\\n", "one"),
])
def test_a_message_that_the_end_of_a_pipe_leaves_open_counts(run: Run, stdin: str, message: str) -> None:
    """A backslash or quotes at the end of a script's last line cost it the answer."""
    assert run("m", "-cnv", stdin=stdin).asked == [[{"role": "user", "content": message}]]


@pytest.mark.parametrize(("settings", "message"), [
    ('{"top_k": ' + "9" * 5000 + "}", "c.json is no saved conversation: it is not JSON"),
    ('{"logit_bias": [[1e400, 1]]}', "logit_bias: [inf, 1] is not a token"),
    ('{"logit_bias": [[259, 1]]}', "logit_bias: token 259 is not in the vocabulary"),
])
def test_a_bad_file_does_not_end_a_conversation(
    run: Run, settings: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers that Python refuses to read or to convert, and a token that the model lacks."""
    (tmp_path / "c.json").write_text(
        f'{{"format": "ggpy conversation 1", "model": "m", "system": "", "settings": {settings}, "messages": []}}')
    run("m", lines=[f"/load {tmp_path}/c.json", "one"])
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == "one \n"


def test_a_bias_on_a_token_that_the_model_lacks_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """At once, on the command line and in a conversation; the setting stays what it was."""
    run("m", "x", "-l", "259+1", code=2)
    assert "logit_bias: token 259 is not in the vocabulary; expected 0 to 258" in capsys.readouterr().err
    assert run("m", lines=["/set logit_bias 300+1", "one"]).params[0].logit_bias == ()
    assert "token 300 is not in the vocabulary" in capsys.readouterr().err


def test_a_setting_that_cannot_work_in_a_conversation_is_a_failure(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a wrong usage of the command line."""
    run("m", "-cnv", stdin="/set top_p 9\n", code=1)
    assert "ggpy run: top_p=9.0: expected a number from 0 to 1" in capsys.readouterr().err


def test_a_single_turn_leaves_after_its_answer(run: Run) -> None:
    """Commands are no turn."""
    assert run("m", "-st", lines=["/help", "one", "two"]).asked == [[{"role": "user", "content": "one"}]]


def test_a_conversation_may_begin_with_the_prompt(run: Run) -> None:
    """With -cnv, as in llama.cpp."""
    llm = run("m", "-cnv", "-p", "one", lines=["two"])
    assert llm.asked[-1] == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one "},
                             {"role": "user", "content": "two"}]


def test_other_chat_templates(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By their name, by their source or from a file."""
    (tmp_path / "t").write_text("F:{{ messages[0].content }}", encoding="utf-8")
    assert run("m", "x", "--chat-template", "T:{{ messages[0].content }}").asked == ["T:x"]
    assert run("m", "x", "--chat-template-file", str(tmp_path / "t"), template=False).asked == ["F:x"]
    assert run("m", "x", "--chat-template", "chatml", template=False).asked == [[{"role": "user", "content": "x"}]]
    with pytest.raises(SystemExit):
        run("m", "x", "--chat-template", "nonsense")
    assert "--chat-template nonsense: expected one of chatml" in capsys.readouterr().err


def test_texts_around_each_message(run: Run) -> None:
    """In place of a template, with escapes; what was said before is repeated as it was."""
    flags = ("--raw", "--in-prefix", "😀 Q: ", "--in-suffix", r"\n'Ä': ")
    assert run("m", "1 + 1", *flags).asked == ["😀 Q: 1 + 1\n'Ä': "]
    assert run("m", "-sys", "S. ", "--in-prefix", "|", lines=["one", "two"]).asked == ["S. |one", "S. |oneS. |one |two"]


def test_variables_of_the_chat_template(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Any JSON object."""
    assert run("m", "x", "--chat-template", "{{ a }}{{ b[0] }}", "--chat-template-kwargs",
               '{"a": "A", "b": [1]}').asked == ["A1"]
    for text, message in (("{", "this is not JSON"), ("[]", "expected a JSON object")):
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
    run("m", "x", "--jinja", "-mli", "-fa", "on", "-ngl", "99", "-mg", "0", "--no-display-prompt", "--no-show-timings")
    assert capsys.readouterr().err == "ggpy: -ngl has no effect\nggpy: -mg has no effect\n"


def test_a_token_for_hugging_face(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is where its tools look for it."""
    monkeypatch.setenv("HF_TOKEN", "another")
    run("m", "x", "-hft", "mine")
    assert os.environ["HF_TOKEN"] == "mine"


def test_underscores_in_flags_are_hyphens(run: Run) -> None:
    """As in llama.cpp; values keep theirs."""
    llm = run("m", "x_y", "--ctx_size", "99", "--top_k=7")
    assert (llm.n_ctx, llm.params[0].top_k, llm.asked) == (99, 7, [[{"role": "user", "content": "x_y"}]])


def test_a_processor_that_there_is_not_is_refused_before_the_model_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could be a download of gigabytes."""
    monkeypatch.setenv("GGPY_CPU", "z80")
    assert cli.main(["run", "no/such.gguf", "-cnv"]) == 2
    assert "GGPY_CPU='z80': this machine can run " in capsys.readouterr().err


def test_a_system_prompt_needs_a_template(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """With a model that has none, there is no place for it."""
    run("m", "x", "-sys", "S", template=False, code=2)
    assert "this model has no chat template, so there is no place for a system prompt" in capsys.readouterr().err
    assert run("m", "x", "-sys", "S", "--chat-template", "chatml", template=False).asked == [[
        {"role": "system", "content": "S"}, {"role": "user", "content": "x"}]]


def test_a_prompt_file_that_is_no_text_is_one_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which file, and where it stops being text."""
    path = tmp_path / "p"
    path.write_bytes(b"abc\xff")
    with pytest.raises(SystemExit):
        run("m", "-f", str(path))
    assert "p: byte 3 is not UTF-8 text; is this the right file?" in capsys.readouterr().err


def test_a_binary_file_is_taken_to_its_last_byte(run: Run, tmp_path: Path) -> None:
    """Newlines too."""
    (tmp_path / "p").write_bytes(b"a\r\n")
    assert run("m", "-bf", str(tmp_path / "p"), "--raw").asked == ["a\r\n"]


def test_answers_can_go_to_a_file(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with >, nothing but the answers."""
    run("m", "x", "-o", str(tmp_path / "answer"))
    assert (tmp_path / "answer").read_text() == "x \n"
    assert capsys.readouterr().out == ""


def test_a_file_for_answers_is_kept_until_there_is_a_model(tmp_path: Path) -> None:
    """A slip in the model's name must not cost the last answer."""
    (tmp_path / "answer").write_text("dear", encoding="utf-8")
    assert cli.main(["run", "no/such.gguf", "x", "-o", str(tmp_path / "answer")]) == 1
    assert (tmp_path / "answer").read_text(encoding="utf-8") == "dear"


def test_a_prompt_that_is_not_utf_8_can_be_shown_in_a_file(run: Run, tmp_path: Path) -> None:
    """What cannot be written is replaced, as on stdout."""
    run("m", "caf\udce9", "--raw", "--display-prompt", "-o", str(tmp_path / "answer"))
    assert (tmp_path / "answer").read_text(encoding="utf-8") == "caf?caf\ufffd \n"


def test_json_has_no_control_characters(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON would allow those of C1, which a terminal obeys as it does escape sequences."""
    run("m", "a\x9b2Jb\x7f", "--json")
    line = capsys.readouterr().out
    assert "a\\u009b2Jb\\u007f" in line
    assert json.loads(line)["text"] == "a\x9b2Jb\x7f "


def test_a_prompt_that_cannot_fit_is_not_encoded_first(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That would take long for nothing: it has a token for each longest one's bytes at least, here 12."""
    from tests.tools.echo_llm import ByteTokenizer

    monkeypatch.delattr(ByteTokenizer, "encode")
    run("m", "x" * 120_000, code=1)
    assert "the prompt has 10,000 tokens at least, but the context holds 4,096" in capsys.readouterr().err
