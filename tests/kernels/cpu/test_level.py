"""Which level is chosen: by what the processor has, what the system allows, and GGPY_CPU. No test needs such a one."""

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ggpy import machine
from ggpy.errors import ConfigError
from ggpy.kernels.cpu import compile_workers, level
from ggpy.kernels.cpu.arm import arm_features, linux_features
from ggpy.kernels.cpu.compile import unwanted_features
from ggpy.kernels.cpu.level import LEVELS, Level, available_levels, current_level

AMX = ("amx-tile", "amx-int8")
BASE = {"neon": True, "fp-armv8": True}
GRAVITON_2 = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp asimdrdm asimddp ssbs\n"
RASPBERRY_PI_4 = "processor\t: 0\nFeatures\t: fp asimd evtstrm crc32 cpuid\n"

Host = Callable[[str, Mapping[str, bool]], None]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Makes this machine one of that family, of which LLVM tells those features."""
    monkeypatch.delenv("GGPY_CPU", raising=False)

    def become(family: str, told: Mapping[str, bool]) -> None:
        monkeypatch.setattr("platform.machine", lambda: family)
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: dict(told))
        level.feature_map.cache_clear()

    level.tiles_refusal.cache_clear()
    yield become
    monkeypatch.undo()
    level.feature_map.cache_clear()
    level.tiles_refusal.cache_clear()


def names(levels: tuple[Level, ...]) -> list[str]:
    return [each.name for each in levels]


def named(name: str) -> Level:
    return next(each for each in LEVELS if each.name == name)


@pytest.mark.parametrize(("cpuinfo", "features"), [
    (GRAVITON_2, BASE | {"dotprod": True, "lse": True}), (RASPBERRY_PI_4, BASE | {"dotprod": False, "lse": False}),
    (GRAVITON_2 + RASPBERRY_PI_4, BASE | {"dotprod": False, "lse": False}), ("processor\t: 0\n", {})])
def test_linux_tells_what_every_core_of_an_arm_processor_has(cpuinfo: str, features: dict[str, bool]) -> None:
    """Also where cores are of two kinds, or nothing is said."""
    assert linux_features(cpuinfo) == features


def test_macos_tells_what_an_arm_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system too old to know the name of a feature has it not."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(machine, "sysctl", {"hw.optional.arm.FEAT_DotProd": 1}.get)
    assert arm_features() == BASE | {"dotprod": True, "lse": False}


def test_windows_tells_what_an_arm_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the numbers of winnt.h."""
    kernel32 = SimpleNamespace(IsProcessorFeaturePresent=lambda number: int(number == 43))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    assert arm_features() == BASE | {"dotprod": True, "lse": False}


@pytest.mark.parametrize(("cpuinfo", "levels"), [(GRAVITON_2, ["dotprod", "portable"]), (RASPBERRY_PI_4, ["portable"])])
def test_arm_machines_run_the_level_of_their_processor(
        host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpuinfo: str, levels: list[str]) -> None:
    """LLVM tells nothing there of products of bytes."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    host("aarch64", {"neon": True, "crc": True})
    assert names(available_levels()) == levels


def test_macs_run_the_level_dotprod(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM tells nothing at all there."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(machine, "sysctl", lambda name: 1)
    host("arm64", {})
    assert names(available_levels()) == ["dotprod", "portable"]


def test_an_arm_machine_that_tells_nothing_runs_what_asks_nothing(
        host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is hidden."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    host("aarch64", {})
    assert current_level() == Level("portable", "aarch64", (), bits="portable")


def with_tiles(host: Host) -> None:
    host("x86_64", dict.fromkeys((*level.AVX512VNNI, *AMX), True))


@pytest.mark.parametrize("allowed", [True, False])
def test_tiles_are_used_where_the_system_allows_them(
        host: Host, monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    """A process that may not have tiles runs at the next level."""
    with_tiles(host)
    monkeypatch.setattr(level, "tiles_refusal", lambda: None if allowed else "Operation not permitted")
    assert current_level().name == ("amx" if allowed else "avx512vnni")


def test_who_wants_another_level_asks_for_no_tiles(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would have more to save of every thread."""
    with_tiles(host)
    asked: list[str] = []
    monkeypatch.setattr(level, "tiles_refusal", lambda: asked.append("tiles"))
    monkeypatch.setenv("GGPY_CPU", "avx512vnni")
    assert (current_level().name, asked) == ("avx512vnni", [])
    monkeypatch.setenv("GGPY_CPU", "amx")
    assert current_level().name == "amx"
    assert asked


def test_tiles_that_are_wanted_and_denied_are_an_error_with_the_systems_words(
        host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no fault of the processor."""
    with_tiles(host)
    monkeypatch.setattr(level, "tiles_refusal", lambda: "Operation not permitted")
    monkeypatch.setenv("GGPY_CPU", "amx")
    with pytest.raises(ConfigError, match=r"the system does not allow tiles: Operation not permitted; .* avx512vnni"):
        current_level()


@pytest.mark.skipif(level.host_machine() != "x86_64", reason="the question is one of x86-64")
def test_a_processor_without_tiles_is_refused_them() -> None:
    """The question does no harm where there is nothing to allow, and the system's answer is kept."""
    refusal = level.tiles_refusal()
    assert (refusal is None) == (level.host_features() >= frozenset(AMX))
    assert refusal != ""


def test_code_uses_nothing_that_the_processor_hides() -> None:
    """A virtual machine may hide what the processor's name stands for; what is beyond the level is not used either."""
    known = {"avx512f": True, "avx2": True, "gfni": False, "sha": True, "avx10.1": False}
    assert unwanted_features(named("avx2"), known) == ["avx512f", "avx10.1", "gfni"]
    assert {"sve", "i8mm", "lse"} <= set(unwanted_features(named("dotprod"), {"lse": False}))
    assert "dotprod" not in unwanted_features(named("dotprod"), {})


def test_code_for_arm_has_no_vectors_of_unknown_width() -> None:
    """The name of a processor with SVE does not make LLVM divide with it."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    divide = "define <4 x i32> @f(<4 x i32> %a, <4 x i32> %b) { %r = sdiv <4 x i32> %a, %b\n ret <4 x i32> %r }"
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    unwanted = ",".join(f"-{name}" for name in unwanted_features(named("dotprod"), {}))
    machines = (target.create_target_machine(cpu="neoverse-v1", features=features)
                for features in ("+neon", f"{unwanted},+neon"))
    code = [each.emit_assembly(llvm.parse_assembly(divide)) for each in machines]
    assert ["ptrue" in each for each in code] == [True, False]


def test_a_worker_compiles_for_the_level_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it chose its own, and that were another, nothing would ever start."""
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append(options))
    monkeypatch.setattr(compile_workers, "current_level", lambda: named("avx512vnni"))
    compile_workers.Worker()._errors.close()
    assert started[0]["env"]["GGPY_CPU"] == "avx512vnni"
