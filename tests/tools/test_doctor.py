"""`ggpy doctor`: what it finds, what it advises, and that nothing broken stops it."""

import json
import os
import re
import shutil
import sys
import time
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ggpy import cli, machine
from ggpy.hub import catalogue
from ggpy.kernels.cpu.cache import cache_folder, object_path, write_object
from ggpy.kernels.cpu.level import available_levels, feature_map
from ggpy.tools import checks, doctor, memory_speed
from ggpy.tools.kernel_cache import kernel_files, remove_stale


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of ggpy's, and a measurement that takes no second."""
    folder = tmp_path / "home"
    monkeypatch.setenv("GGPY_HOME", str(folder))
    monkeypatch.delenv("GGPY_CPU", raising=False)
    monkeypatch.setattr(checks, "BANDWIDTH_S", 0.01)
    monkeypatch.setattr(memory_speed, "PART_BYTES", 1 << 20)
    return folder


def report(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    code = cli.main(["doctor", "--json", *flags])
    return code, json.loads(capsys.readouterr().out)


def problems(section: checks.Section) -> str:
    return "\n".join(f"{problem.what}: {problem.advice}" for problem in section.problems)


def test_every_section_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A sound installation has no fatal problem and exits with 0."""
    code, sections = report(capsys)
    assert code == 0
    assert list(sections) == list(doctor.SECTIONS)
    assert sections["versions"]["facts"]["numba"] is not None
    assert sections["processor"]["facts"]["level"] == available_levels()[0].name
    assert sections["cores"]["facts"]["threads by default"] == machine.usable_cores()
    assert sections["bandwidth"]["facts"]["GB/s"] > 0
    assert sections["kernels"]["facts"]["can be written"] is True


def test_a_person_gets_a_table(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """Sizes in MB, lists with commas; stdout alone."""
    assert cli.main(["doctor"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("kernels ") and line.endswith(f" {home / 'kernels'}") for line in lines)
    assert any(line.split() == ["compiled", "0,", "0.0", "MB"] for line in lines)
    assert any(line.split() == ["stale", "0,", "0.0", "MB"] for line in lines)


def test_large_sizes_are_in_gb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine's memory is not told in thousands of MB."""
    monkeypatch.setattr(machine, "total_memory_bytes", lambda: 25_276_500_000)
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 1_000_000_000)
    assert cli.main(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["memory", "total", "25.3", "GB"] in lines
    assert ["available", "1.0", "GB"] in lines


def test_what_ggpy_needs_is_what_its_metadata_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """All dependencies of pyproject.toml and none of an extra, which an ordinary installation lacks."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [f'{line}; sys_platform == "darwin" and extra == "{name}"'
              for name, lines in project["optional-dependencies"].items() for line in lines]
    monkeypatch.setattr(metadata, "requires", lambda name: [*project["dependencies"], *extras])
    monkeypatch.setattr(checks, "_version", lambda name: "1.0")
    section = checks.versions()
    assert checks.required_packages() == [re.split("[<>=]", line)[0] for line in project["dependencies"]]
    assert list(section.facts) == ["ggpy", "python", "system", *checks.required_packages()]
    assert section.problems == []


def test_a_section_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is that section's problem."""
    def fail() -> checks.Section:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setitem(doctor.SECTIONS, "memory", fail)
    code, sections = report(capsys)
    assert code == 0
    assert sections["memory"]["problems"][0]["what"] == "this could not be looked at: ZeroDivisionError: no such thing"
    assert sections["bandwidth"]["problems"] == []


def test_a_package_that_cannot_be_imported_is_fatal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """None in sys.modules makes the import of numba fail, as a broken wheel would."""
    monkeypatch.setitem(sys.modules, "numba", None)
    code, sections = report(capsys)
    assert code == 1
    problem, = sections["versions"]["problems"]
    assert problem["what"].startswith("numba is installed but cannot be imported: ModuleNotFoundError")
    assert "pip install --force-reinstall numba" in problem["advice"]


def test_an_absent_package_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is the command that installs it."""
    real = checks._version
    monkeypatch.setattr(checks, "_version", lambda package: None if package == "numba" else real(package))
    section = checks.versions()
    assert f"numba is not installed: run `{sys.executable} -m pip install numba`" in problems(section)
    assert section.problems[0].is_fatal


def test_without_the_compiler_the_rest_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """llvmlite tells the processor's features and where kernels are kept; both sections say that it is missing."""
    feature_map.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "llvmlite"]:
        monkeypatch.setitem(sys.modules, name, None)
    code, sections = report(capsys)
    assert code == 1
    assert "llvmlite" in sections["processor"]["problems"][0]["what"]
    assert "llvmlite" in sections["kernels"]["problems"][0]["what"]
    assert sections["disk"]["facts"]["free bytes"] > 0


def test_a_cache_that_cannot_be_written_is_fatal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file stands where the folder should be."""
    home.mkdir()
    (home / "kernels").write_text("not a folder")
    code, sections = report(capsys)
    assert code == 1
    assert sections["kernels"]["facts"]["can be written"] is False
    assert "set GGPY_HOME to one that is" in sections["kernels"]["problems"][0]["advice"]


def test_a_home_that_cannot_work_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each section that needs the folder says so."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("GGPY_HOME", str(file))
    _, sections = report(capsys)
    assert all(sections[name]["problems"][0]["what"].startswith("GGPY_HOME=")
               for name in ("kernels", "models", "disk"))


def test_a_level_that_does_not_exist_is_to_be_unset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that cannot work is no fault of the installation."""
    monkeypatch.setenv("GGPY_CPU", "fastest")
    _, sections = report(capsys)
    problem = sections["processor"]["problems"][0]
    assert problem["what"].startswith("GGPY_CPU='fastest'")
    assert "unset" in problem["advice"]


def test_a_level_that_was_chosen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """GGPY_CPU left over from a test explains why ggpy is slow."""
    monkeypatch.setenv("GGPY_CPU", "portable")
    section = checks.processor()
    assert section.facts["level"] == "portable"
    assert "unset GGPY_CPU to be faster" in problems(section) or len(available_levels()) == 1


def test_what_a_better_level_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of x86-64-v3 lacks what AVX-512 needs."""
    from ggpy.kernels.cpu import level

    monkeypatch.setattr(level, "host_machine", lambda: "x86_64")
    monkeypatch.setattr(level, "host_features", lambda: frozenset((*level.X86_64_V3, "avx512f")))
    section = checks.processor()
    assert section.facts["level"] == "avx2"
    lacking = "avx512bw, avx512dq, avx512vl, avx512cd, avx512vnni, avx512vbmi"
    assert section.facts["levels that it cannot execute"] == [
        f"amx (without {lacking}, amx-tile, amx-int8)", f"avx512vnni (without {lacking})", "avxvnni"]


def test_tiles_that_the_system_denies_are_told_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor has them; GGPY_CPU=amx cannot work, and says the same."""
    from ggpy.kernels.cpu import level

    features = frozenset((*level.AVX512VNNI, "amx-tile", "amx-int8"))
    monkeypatch.setattr(level, "host_machine", lambda: "x86_64")
    monkeypatch.setattr(level, "processor_features", lambda: features)
    monkeypatch.setattr(level, "tiles_refusal", lambda: "Operation not permitted")
    section = checks.processor()
    assert section.facts["level"] == "avx512vnni"
    assert section.facts["levels that it cannot execute"] == [
        "amx (the system does not allow tiles: Operation not permitted)", "avxvnni"]


def test_stale_kernels_are_counted_and_cleaned(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kept: kernels of any level of this processor. Stale: changed sources, other versions, what a crash left."""
    best, worst = (cache_folder(level) for level in (available_levels()[0], available_levels()[-1]))
    kept = {folder / object_path("q4_1.linear").name for folder in (best, worst)} | {best / "tmpnew"}
    stale = {best / f"q4_1.linear-{'0' * 16}.o", home / "kernels" / "avx2-of-another-numba" / "norm.rms_norm-0.o",
             best / "tmpold"}
    for path in kept | stale:
        write_object(path, b"code")
    os.utime(best / "tmpold", (time.time() - 7200,) * 2)
    files = kernel_files()
    assert set(files.current) == kept - {best / "tmpnew"}
    assert set(files.stale) == stale
    assert "3 kernels" in problems(checks.kernels())

    assert cli.main(["doctor", "--clean", "--json"]) == 0
    assert "deleted 3 stale kernels" in capsys.readouterr().err
    assert {path for path in home.rglob("*") if path.is_file()} == kept
    assert not (home / "kernels" / "avx2-of-another-numba").exists()
    assert remove_stale() == (0, 0)


@pytest.mark.parametrize(("setting", "chosen", "advice"), [
    ("always [madvise] never", "madvise", ""),
    ("always madvise [never]", "never", "echo madvise | sudo tee"),
])
def test_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, chosen: str, advice: str
) -> None:
    """Linux writes the setting that holds in brackets."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    path = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    path.parent.mkdir(parents=True)
    path.write_text(setting + "\n")
    section = checks.huge_pages()
    assert section.facts["transparent huge pages"] == chosen
    assert advice in problems(section)
    assert bool(section.problems) == bool(advice)


def test_scarce_resources_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a CPU, a busy machine, little memory and a full disk."""
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.5)
    monkeypatch.setattr(os, "getloadavg", lambda: (64.0, 0.0, 0.0), raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 200_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000_000))
    assert "quota is 0.50 CPUs" in problems(checks.cores())
    assert "the load is 64.0 and ggpy would use 1 cores" in problems(checks.cores())
    assert "200 MB of memory are available" in problems(checks.memory())
    assert "100 MB free" in problems(checks.disk())


def test_an_interrupted_pull_is_told() -> None:
    """Its parts take space until it goes on or is given up."""
    entry = catalogue.find("smollm2")
    assert entry is not None
    (entry.folder / "parts").mkdir(parents=True)
    (entry.folder / "parts" / "part.whl").write_bytes(bytes(3_000_000))
    section = checks.models()
    assert section.facts["pulled"] == []
    assert section.facts["bytes"] == 3_000_000
    assert "left 3 MB: run `ggpy pull smollm2:135m` to go on, or `ggpy rm smollm2:135m`" in problems(section)


def test_gpus_are_listed_as_nvidia_smi_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the program; absent, there is none."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA X1, 81559 MiB, 570.1'\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    if os.name == "posix":
        assert checks.gpu().facts["NVIDIA"] == ["NVIDIA X1 / 81559 MiB / 570.1"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert checks.gpu().facts["NVIDIA"] == ["none"]
