"""`ggpy list`, for programs."""

import json
from pathlib import Path

import pytest

from ggpy import cli
from ggpy.hub import catalogue, huggingface
from ggpy.hub.names import HubModel
from ggpy.hub.store import ModelStore, StoredModel


def test_json_is_a_list_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes in bytes, and paths of what is here alone."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    file = tmp_path / "m-Q8_0.gguf"
    file.write_bytes(bytes(7))
    monkeypatch.setattr(huggingface, "cached", lambda: [(HubModel("user/m", "Q8_0"), [file])])
    present, *others = catalogue.CATALOGUE
    present.folder.mkdir(parents=True)
    with present.path.open("wb") as whole:
        whole.truncate(present.size_bytes)
    assert cli.main(["list", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)
    assert models[0] == {
        "name": "smollm2:135m", "aliases": ["smollm2"], "size_bytes": 98_362_432, "quant": "Q4_1",
        "path": str(present.path), "description": present.description}
    assert [model["path"] for model in models[1:-1]] == [None] * len(others)
    assert models[-1] == {"name": "hf:user/m:Q8_0", "aliases": [], "size_bytes": 7, "quant": "Q8_0",
                          "path": str(file), "description": "from Hugging Face"}


def test_models_that_a_client_made_are_listed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file that they were made of, where it is here."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(huggingface, "cached", lambda: [])
    file = tmp_path / "m-Q8_0.gguf"
    file.write_bytes(bytes(7))
    ModelStore().save(StoredModel(name="helper:latest", source=str(file), system="Be brief"))
    ModelStore().save(StoredModel(name="later:latest", source=str(tmp_path / "gone.gguf")))
    assert cli.main(["list", "--json"]) == 0
    here, gone = json.loads(capsys.readouterr().out)[-2:]
    assert (here["name"], here["size_bytes"], here["quant"], here["path"]) == ("helper:latest", 7, "Q8_0", str(file))
    assert (gone["name"], gone["size_bytes"], gone["path"]) == ("later:latest", 0, None)
