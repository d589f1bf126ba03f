"""`ggpy run` with a model that a client of the server made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy import cli
from ggpy.errors import PullError
from ggpy.hub.model_names import ModelName
from ggpy.hub.resolve import Resolved
from ggpy.hub.store import ModelStore, StoredModel
from ggpy.tools import inputs, loading
from tests.tools.echo_llm import EchoLLM

Run = Callable[..., EchoLLM]

HELPER = StoredModel(
    name="helper:latest", source="smollm2", system="Be brief", parameters={
        "temperature": 0.25, "top_k": 7, "stop": ["END"], "seed": -1, "repeat_last_n": -1, "num_predict": 50,
        "num_ctx": 512},
    messages=({"role": "user", "content": "Is 7 prime?"}, {"role": "assistant", "content": "yes"}))
EXAMPLE = list(HELPER.messages)


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is loaded is HELPER."""
    monkeypatch.setattr(EchoLLM, "made", HELPER)


@pytest.mark.usefixtures("helper")
def test_what_its_maker_said_counts(run: Run) -> None:
    """System prompt and messages in front, parameters for sampling."""
    llm = run("helper", "Hello")
    assert llm.asked == [[{"role": "system", "content": "Be brief"}, *EXAMPLE, {"role": "user", "content": "Hello"}]]
    (params,) = llm.params
    assert (params.temperature, params.top_k, params.stop, params.max_tokens) == (0.25, 7, ("END",), 50)
    assert (params.repeat_last_n, params.seed, params.top_p) == (None, None, 0.95)


@pytest.mark.usefixtures("helper")
def test_flags_count_before_it(run: Run) -> None:
    """One by one."""
    llm = run("helper", "Hello", "-sys", "Rhyme", "--temp", "0.5", "-r", "STOP")
    assert llm.asked[0][0] == {"role": "system", "content": "Rhyme"}
    (params,) = llm.params
    assert (params.temperature, params.top_k, params.stop) == (0.5, 7, ("STOP",))


@pytest.mark.usefixtures("helper")
def test_its_messages_are_none_of_the_conversation(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """They stay when the conversation is taken back, and are not taken back themselves."""
    llm = run("helper", "-cnv", lines=["Hello", "/undo", "Bye", "/undo", "/undo"])
    system = {"role": "system", "content": "Be brief"}
    assert llm.asked == [[system, *EXAMPLE, {"role": "user", "content": text}] for text in ("Hello", "Bye")]
    assert "nothing has been said yet" in capsys.readouterr().err


@pytest.mark.usefixtures("helper")
def test_info_tells_what_stands_in_front(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Else nobody would know why the model answers as it does."""
    run("helper", "-cnv", lines=["/show info"])
    told = capsys.readouterr().err
    assert "made of    smollm2\n" in told
    assert "in front   user: Is 7 prime? assistant: yes\n" in told


@pytest.mark.usefixtures("helper")
def test_without_a_template_its_system_prompt_has_no_place(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is said, but where the user wants it so."""
    run("helper", "Hello", template=False, code=2)
    assert "there is no place for a system prompt; choose one with --chat-template" in capsys.readouterr().err
    assert run("helper", "Hello", "--raw").asked == ["Hello"]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolved:
    """The model "helper", and a folder to be in; LLM gives back what it is to load."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "LLM", lambda model, progress, **options: (model, options))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    made = StoredModel(name="helper:latest", source=str(file))
    ModelStore().save(made)
    return Resolved(file, made)


def load(spec: str, **options: Any) -> Any:
    """What LLM was given, with `stored`."""
    return loading.load(spec, **options)


def test_what_a_name_means_is_found_once(
    stored: Resolved, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what its maker said; so it cannot change in between, and a file of that name is warned of once."""
    looks: list[ModelName] = []

    def find(store: ModelStore, name: ModelName) -> StoredModel | None:
        looks.append(name)
        return stored.made

    monkeypatch.setattr(ModelStore, "find", find)
    Path("helper").write_bytes(b"notes")
    assert load("helper") == (stored, {})
    assert len(looks) == caplog.text.count("helper is taken as the name of a model") == 1
    assert load(str(stored.path)) == (Resolved(stored.path), {})


def test_a_draft_model_is_found_as_the_model_is(stored: Resolved) -> None:
    """Offline too."""
    assert load("helper", draft_model="helper") == (stored, {"draft_model": stored})
    with pytest.raises(PullError, match="smollm2:135m is not on this machine"):
        load("helper", offline=True, draft_model="smollm2")


def test_a_word_may_be_its_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """So two models on a command line are noticed."""
    monkeypatch.setattr(inputs, "made_model", lambda word: HELPER if word == "helper" else None)
    with pytest.raises(SystemExit):
        cli.main(["run", "-m", "m.gguf", "helper", "Hello"])
    assert "there are two models, helper and m.gguf" in capsys.readouterr().err
