"""`ggpy warm`, with models that say when they are loaded."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ggpy import cli
from ggpy.hub import catalogue
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.sample_candidates import RARE
from ggpy.tools import loading
from tests.models.arch_data import ArchModel


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `ggpy warm` loads and closes."""
    events: list[str] = []

    class Loaded:
        def __init__(self, spec: str, **options: Any) -> None:
            self.spec, self.path = spec, Path(spec)
            events.append(f"load {spec} {options['compute']}")

        def close(self) -> None:
            events.append(f"close {self.spec}")

    monkeypatch.setattr(loading, "load", Loaded)

    def addresses(names: Sequence[str], progress: object_loader.Progress) -> None:
        events.append(f"{len(names)} samplers")
        progress("", 0, len(names))

    monkeypatch.setattr(object_loader, "addresses", addresses)
    return events


def test_warm_compiles_both_layouts_where_memory_will_decide(
    warmed: list[str], arch_model: Callable[[str], ArchModel], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:
    """A later start that has less memory compiles nothing; who names a layout gets that one."""
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(object_loader, "addresses", lambda names, progress: asked.append(names))
    path = str(arch_model("llama_q8_0").path)
    assert cli.main(["warm", path]) == 0
    assert asked == [["q8_0.linear", "q8_0.mapped_linear", "q8_0.pack"], RARE]
    assert cli.main(["warm", path, "--repack", "off"]) == 0
    assert asked[2:] == [RARE]


def test_warm_loads_every_model_and_closes_it(warmed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Loading compiles what is missing; then come the samplers that not every request wants."""
    assert cli.main(["warm", "a", "b", "--compute", "f32"]) == 0
    assert warmed == ["load a f32", "close a", "load b f32", "close b", f"{len(RARE)} samplers"]
    captured = capsys.readouterr()
    assert captured.out == "a is ready\nb is ready\n"
    assert captured.err.startswith(f"loading rare samplers: preparing {len(RARE)} kernels")


def test_warm_heeds_the_variables_that_choose_kernels(
    warmed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that `ggpy run` will heed."""
    monkeypatch.setenv("LLAMA_ARG_CACHE_TYPE_K", "q3")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["warm", "a"])
    assert "ggpy warm: LLAMA_ARG_CACHE_TYPE_K=q3: expected one of" in capsys.readouterr().err
    assert warmed == []


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
    assert cli.main(["warm", "--repack", "on"]) == 0
    assert warmed == [f"load {entry.name} int8", f"close {entry.name}", f"{len(RARE)} samplers"]
