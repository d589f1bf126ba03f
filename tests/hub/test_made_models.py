"""Models of the store, found by the names that their makers gave them."""

import logging
from pathlib import Path

import pytest

from ggpy import cli
from ggpy.errors import PullError
from ggpy.hub import huggingface, resolve
from ggpy.hub.resolve import made_model, resolve_model
from ggpy.hub.store import ModelStore, StoredModel

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that "Helper:latest" was made of; the current folder is an empty one."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    ModelStore().save(StoredModel(name="Helper:latest", source=str(path), template="{{ messages }}"))
    return path


@pytest.mark.parametrize("name", ["helper", "Helper:latest", "library/helper"])
def test_a_name_is_found_in_any_spelling(file: Path, name: str) -> None:
    """As the server finds it."""
    assert resolve_model(name) == file
    assert made_model(name) == ModelStore().models()[0]


@pytest.mark.parametrize("name", ["helper:other", "hf:user/helper", "./helper", "", "a\0b"])
def test_other_names_are_none_of_the_store(file: Path, name: str) -> None:
    """A tag counts, and so does a path."""
    assert made_model(name) is None


def test_a_model_file_goes_before_a_name(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of any other kind does not, and a warning says so."""
    caplog.set_level(logging.WARNING, "ggpy")
    Path("helper").write_bytes(b"notes")
    assert resolve_model("helper") == file
    assert "helper is taken as the name of a model" in caplog.text
    Path("helper").write_bytes(b"GGUF")
    assert (resolve_model("helper"), made_model("helper")) == (Path("helper"), None)


def test_a_name_that_is_nearly_one_is_guessed(file: Path) -> None:
    """As those of the catalogue are."""
    with pytest.raises(PullError, match=r"no model is called 'helpr'. Did you mean Helper\?"):
        resolve_model("helpr")


@pytest.mark.parametrize(("name", "near"), [
    ("team/gt", "team/gt:v1"),
    ("Team/GT", "team/gt:v1"),
    ("team/gt:v2", "team/gt:v1"),
    ("tiem/helper", "team/helper"),
])
def test_a_name_with_a_namespace_is_guessed_too(file: Path, name: str, near: str) -> None:
    """Though it could be the path of a file."""
    for made in ("team/gt:v1", "team/helper:latest"):
        ModelStore().save(StoredModel(name=made, source=str(file)))
    with pytest.raises(PullError, match=f"^{name}: there is no such file; did you mean {near}"):
        resolve_model(name)


@pytest.mark.parametrize("name", ["helpr", "HELPER:v1"])
def test_letters_in_another_case_are_near(file: Path, name: str) -> None:
    """As they are the same."""
    with pytest.raises(PullError, match=r"Did you mean Helper\?"):
        resolve_model(name)


def test_a_model_may_be_called_as_the_one_that_it_was_made_of(file: Path) -> None:
    """The other's name then means the other, not itself."""
    ModelStore().save(StoredModel(name="smollm2:latest", source="smollm2"))
    with pytest.raises(PullError, match=r"smollm2:latest was made of smollm2: .* is not on this machine"):
        resolve_model("smollm2", offline=True)


def test_a_file_that_is_gone_is_told(file: Path) -> None:
    """Of an upload, and of somebody's own file."""
    store = ModelStore()
    store.save(StoredModel(name="own:latest", source=str(file.with_name("gone.gguf"))))
    blob = store.blob_path(DIGEST)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"GGUF")
    store.save(StoredModel(name="up:latest", source=DIGEST))
    blob.unlink()
    with pytest.raises(PullError, match=r"own:latest was made of .*there is no such file"):
        resolve_model("own")
    with pytest.raises(PullError, match=r"up:latest: its file .* is gone; make the model anew"):
        resolve_model("up")


def test_its_name_pulls_what_it_was_made_of(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the catalogue, of Hugging Face, or nothing where it is a file; with or without its tag."""
    monkeypatch.setattr(resolve, "pull", lambda entry, progress: entry.name)
    monkeypatch.setattr(huggingface, "pull", lambda model, offline, progress: f"{model} offline={offline}")
    for name, source in (("mario", "smollm2"), ("luigi", "hf:user/repo:Q8_0"), ("gemma3", "gemma3")):
        ModelStore().save(StoredModel(name=f"{name}:latest", source=source))
    assert cli.main(["pull", "mario", "luigi:latest", "gemma3", "helper"]) == 0
    assert capsys.readouterr().out == f"smollm2:135m\nhf:user/repo:Q8_0 offline=False\ngemma3:270m\n{file}\n"
    assert cli.main(["pull", "--offline", "mario"]) == 1
    assert "smollm2:135m is not on this machine" in capsys.readouterr().err


def test_it_is_deleted_by_its_name(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its maker's own file stays."""
    assert cli.main(["rm", "helper"]) == 0
    assert (ModelStore().models(), file.exists()) == ([], True)
    assert capsys.readouterr().err == "deleted Helper:latest\n"
