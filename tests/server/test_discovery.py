"""The models that a server finds: what a file of presets and a folder say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggpy.errors import ConfigError
from ggpy.hub.model_names import ModelName
from ggpy.hub.store import ModelStore, StoredModel
from ggpy.server.model_pool.discovery import folder_entries, given_entry, preset_entries
from ggpy.server.model_pool.presets import read_presets
from ggpy.server.settings import ServerSettings


def test_presets_are_command_lines(tmp_path: Path) -> None:
    """Keys are flags, short ones too, or names of variables; switches have values as variables do."""
    file = tmp_path / "models.ini"
    file.write_text("[*]\nctx-size = 512\nmetrics = 1\n[one]\nhf-repo = u/r\nc = 64\nLLAMA_ARG_PORT = 7\n"
                    "load-on-startup = true\n[two]\nmodel = a b.gguf\njinja = off\nprops = off\n")
    one, two = read_presets(file, ["-t", "1"], {"--port": "PORT"},
                            frozenset({"--metrics", "--jinja", "--no-jinja", "--props"}))
    assert one.argv == ("--ctx-size", "512", "--metrics", "--hf-repo", "u/r", "-c", "64", "--port", "7", "-t", "1")
    assert two.argv == ("--ctx-size", "512", "--metrics", "--model", "a b.gguf", "--no-jinja", "-t", "1")
    assert (one.loads_on_startup, two.loads_on_startup) == (True, False)


@pytest.mark.parametrize("text", ["key = 1\n", "[a\n", "[a]\n  = 2\n"])
def test_a_file_that_is_no_preset_is_an_error(tmp_path: Path, text: str) -> None:
    """It names the file."""
    file = tmp_path / "models.ini"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"models\.ini"):
        read_presets(file, [], {}, frozenset())


def test_a_model_is_given_by_the_name_that_its_maker_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run as he said, and called as the command line says."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    made = StoredModel(name="helper:latest", source=str(tmp_path / "m.gguf"), template="{{ 1 }}",
                       parameters={"num_ctx": 64})
    ModelStore().save(made)
    entry = given_entry(ServerSettings(aliases=("b", "a"), tags=("t",)), "helper")
    assert (entry.name, entry.aliases, entry.tags, entry.stored) == ("a", ("b", "a"), ("t",), made)
    assert entry.settings is not None
    assert (entry.settings.chat_template, entry.settings.options.n_ctx) == ("{{ 1 }}", 64)
    other = given_entry(ServerSettings(), str(tmp_path / "m.gguf"))
    assert (other.name, other.stored, other.settings) == (str(tmp_path / "m.gguf"), None, None)


def test_a_preset_may_be_of_a_model_that_a_client_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its maker said counts then, too."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    made = StoredModel(name="helper:latest", source=str(tmp_path / "m.gguf"), template="{{ 1 }}")
    ModelStore().save(made)
    (tmp_path / "models.ini").write_text("[mine]\nmodel = helper\nc = 64\nsleep-idle-seconds = 9\n")
    ((entry, _),) = preset_entries(ServerSettings(models_preset=tmp_path / "models.ini"))
    assert (entry.name, entry.stored) == ("mine", made)
    assert entry.settings is not None
    assert (entry.settings.chat_template, entry.settings.options.n_ctx, entry.settings.sleep_idle_s) == (
        "{{ 1 }}", 64, 9)


def test_a_preset_whose_model_is_gone_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in the list, as its model may come back. One that may be pulled is not gone."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    ModelStore().save(StoredModel(name="helper:latest", source=str(tmp_path / "m.gguf")))
    (tmp_path / "models.ini").write_text("[mine]\nmodel = helper\n[pulled]\nmodel = smollm2\n")
    settings = ServerSettings(models_preset=tmp_path / "models.ini")
    assert [entry.name for entry, _ in preset_entries(settings)] == ["mine", "pulled"]
    assert caplog.messages == []
    ModelStore().delete(ModelName.parse("helper"))
    assert [entry.name for entry, _ in preset_entries(settings)] == ["mine", "pulled"]
    (message,) = caplog.messages
    assert "[mine] cannot be loaded: no model is called 'helper'" in message


def test_a_folder_holds_models_and_folders_of_parts(tmp_path: Path) -> None:
    """Not what models see with, and nothing else."""
    for name in ("b.gguf", "c/c-00001-of-00002.gguf", "c/c-00002-of-00002.gguf", "c/mmproj-c.gguf", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [(entry.name, Path(entry.source).name) for entry in folder_entries(tmp_path)] == [
        ("b", "b.gguf"), ("c", "c-00001-of-00002.gguf")]
