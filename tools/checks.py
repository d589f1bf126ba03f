"""What `ggpy doctor` looks at, a section each. Imports happen inside, since any of them may be what is broken."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from ggpy import config, machine

FOR_PULLS = ("huggingface_hub", "pip")      # without these, models that are here still run
IMPORTED = ("numpy", "llvmlite", "numba", "tokenizers")        # what fails to load where wheels do not fit the machine
LEAST_FREE_BYTES = 2_000_000_000
BANDWIDTH_S = 1.0

Fact = str | int | float | bool | list[str] | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and what the user can do. `is_fatal`: ggpy cannot run a model like this."""

    what: str
    advice: str
    is_fatal: bool = False


@dataclass(slots=True)
class Section:
    """What was found; a fact whose name ends in "bytes" is a size, that of what stands before that word."""

    facts: dict[str, Fact] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, what: str, advice: str, *, is_fatal: bool = False) -> None:
        self.problems.append(Problem(what, advice, is_fatal))


def versions() -> Section:
    section = Section()
    section.facts["ggpy"] = _version("ggpy")
    section.facts["python"] = f"{platform.python_version()}, {sys.executable}"
    section.facts["system"] = platform.platform()
    for package in required_packages():
        section.facts[package] = version = _version(package)
        if version is None:
            section.problem(f"{package} is not installed", f"run `{sys.executable} -m pip install {package}`, or "
                            "reinstall ggpy", is_fatal=package not in FOR_PULLS)
    for package in IMPORTED:
        if section.facts.get(package) is not None and (error := _import_error(package)) is not None:
            section.problem(f"{package} is installed but cannot be imported: {error}",
                            f"run `{sys.executable} -m pip install --force-reinstall {package}`", is_fatal=True)
    return section


def required_packages() -> list[str]:
    """What ggpy's own metadata says that it needs to run, extras left out; empty if ggpy is not installed."""
    try:
        requirements = metadata.requires("ggpy") or []
    except metadata.PackageNotFoundError:
        return []
    needed = [line for line in requirements if not re.search(r"\bextra\s*==", line)]
    return [name[0] for line in needed if (name := re.match(r"[\w.-]+", line)) is not None]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _import_error(package: str) -> str | None:
    try:
        importlib.import_module(package)
    except Exception as error:      # a broken package may raise anything
        return f"{type(error).__name__}: {error}"
    return None


def processor() -> Section:
    from ggpy.kernels.cpu.level import (
        LEVELS,
        TILES,
        available_levels,
        current_level,
        host_features,
        host_machine,
        processor_features,
        tiles_refusal,
    )

    section = Section()
    features = host_features()
    known = dict.fromkeys(feature for level in LEVELS if level.machine == host_machine() for feature in level.features)
    chosen = current_level()
    section.facts["name"] = processor_name()
    section.facts["machine"] = host_machine()
    section.facts["features"] = [feature for feature in known if feature in features]
    section.facts["level"] = chosen.name
    section.facts["levels that it can execute"] = [level.name for level in available_levels()]
    refusal = tiles_refusal() if "amx-tile" in processor_features() else None
    lacks = {level.name: [feature for feature in level.features if feature not in features]
             for level in LEVELS if level.machine == host_machine()}
    section.facts["levels that it cannot execute"] = [
        f"{name} (the system does not allow tiles: {refusal})" if name == TILES and refusal is not None else
        name if missing == [name] else f"{name} (without {', '.join(missing)})"
        for name, missing in lacks.items() if missing]
    if chosen != available_levels()[0]:
        section.problem(f"GGPY_CPU chooses the level {chosen.name}; this processor can execute "
                        f"{available_levels()[0].name}", "unset GGPY_CPU to be faster")
    elif chosen.name == "portable":
        section.problem("this processor has none of the instructions that make kernels fast",
                        "if this is a virtual machine, let it see the host's processor (qemu: -cpu host)")
    return section


def processor_name() -> str | None:
    """As the system calls it; None where it does not."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip() or None
    try:
        lines = (machine.ROOT / "proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def cores() -> Section:
    section = Section()
    usable = machine.usable_cores()
    section.facts["logical CPUs"] = os.cpu_count()
    section.facts["CPUs in the affinity"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    section.facts["CPUs in the cgroup's quota"] = machine.cpu_quota() or "no limit"
    section.facts["threads by default"] = usable
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    section.facts["load"] = None if load is None else round(load, 1)
    quota = machine.cpu_quota()
    if quota is not None and quota < 1:
        section.problem(f"the cgroup's quota is {quota:.2f} CPUs: threads are stopped in the middle of each step",
                        "give the container at least one whole CPU (docker: --cpus)")
    if load is not None and load > usable:
        section.problem(f"the load is {load:.1f} and ggpy would use {usable} cores: threads will wait for each other",
                        "end other programs, or use fewer threads (-t)")
    return section


def memory() -> Section:
    section = Section()
    section.facts["total bytes"] = machine.total_memory_bytes()
    section.facts["available bytes"] = available = machine.available_memory_bytes()
    if available is not None and available < 1_000_000_000:
        section.problem(f"{available / 1e6:,.0f} MB of memory are available", "end other programs, or take a smaller "
                        "model (`ggpy show MODEL` tells what one needs)")
    return section


def bandwidth() -> Section:
    from ggpy.tools.memory_speed import part_bytes

    section = Section()
    n_threads = machine.usable_cores()
    section.facts["GB/s"] = round(read_bandwidth(n_threads) / 1e9, 1)
    section.facts["measured by"] = f"NumPy reading {part_bytes(n_threads) >> 20} MiB in each of {n_threads} " \
                                   f"threads, best of {BANDWIDTH_S:g} s"
    return section


def read_bandwidth(n_threads: int) -> float:
    """Bytes a second that are read, all threads at once; the best round of a second counts."""
    from ggpy.tools.memory_speed import MemoryReader

    return max(MemoryReader(n_threads).read(BANDWIDTH_S))


def huge_pages() -> Section:
    section = Section()
    path = machine.ROOT / "sys/kernel/mm/transparent_hugepage/enabled"
    if not path.is_file():
        section.facts["transparent huge pages"] = "this system has no such setting"
        return section
    chosen = path.read_text(encoding="utf-8").partition("[")[2].partition("]")[0]
    section.facts["transparent huge pages"] = chosen
    if chosen == "never":
        section.problem("transparent huge pages are off, which slows the reading of weights down",
                        f"run `echo madvise | sudo tee {path}`")
    return section


def kernels() -> Section:
    from ggpy.tools.kernel_cache import kernel_files

    section = Section()
    folder = config.kernels_dir()
    section.facts["folder"] = str(folder)
    section.facts["can be written"] = error = _write_error(folder) or True
    if error is not True:
        section.facts["can be written"] = False
        section.problem(f"kernels cannot be kept: {error}", "make the folder writable, or set GGPY_HOME to one that is",
                        is_fatal=True)
    files = kernel_files()
    section.facts["compiled"] = len(files.current)
    section.facts["compiled bytes"] = _size_bytes(files.current)
    section.facts["stale"] = len(files.stale)
    section.facts["stale bytes"] = stale = _size_bytes(files.stale)
    if files.stale:
        section.problem(f"{len(files.stale):,} kernels ({stale / 1e6:,.1f} MB) are of other versions of ggpy, Numba or "
                        "the processor", "run `ggpy doctor --clean` to delete them")
    return section


def _write_error(folder: Path) -> str | None:
    """Why no file can be made in `folder`; None: it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"ggpy")
    except OSError as error:
        return f"{error.strerror} ({folder})"
    return None


def _size_bytes(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def gpu() -> Section:
    section = Section()
    section.facts["used"] = "no: ggpy computes on the CPU"
    section.facts["NVIDIA"] = _nvidia() or ["none"]
    section.facts["cupy"] = importlib.util.find_spec("cupy") is not None
    if sys.platform == "darwin":
        section.facts["Metal package"] = importlib.util.find_spec("Metal") is not None
    return section


def _nvidia() -> list[str]:
    """Name, memory and driver of each GPU, as nvidia-smi tells."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"nvidia-smi failed: {error}"]
    lines = result.stdout.splitlines() if result.returncode == 0 else [f"nvidia-smi failed: {result.stdout.strip()}"]
    return [line.replace(", ", " / ") for line in lines]


def models() -> Section:
    from ggpy.hub.catalogue import CATALOGUE

    section = Section()
    folder = config.models_dir()
    section.facts["folder"] = str(folder)
    section.facts["pulled"] = [entry.name for entry in CATALOGUE if entry.is_present]
    section.facts["bytes"] = _size_bytes([path for path in folder.rglob("*") if path.is_file()])
    if _version("huggingface_hub") is not None:
        from huggingface_hub import constants

        files = [path for path in Path(constants.HF_HUB_CACHE).glob("models--*/snapshots/**/*.gguf") if path.is_file()]
        section.facts["Hugging Face's cache"] = constants.HF_HUB_CACHE
        section.facts["GGUF files in it"] = [path.name for path in sorted(files)]
    for entry in CATALOGUE:
        parts = [path for path in (entry.folder / "parts").rglob("*") if path.is_file()]
        if parts:
            section.problem(f"a pull of {entry.name} was interrupted and left {_size_bytes(parts) / 1e6:,.0f} MB",
                            f"run `ggpy pull {entry.name}` to go on, or `ggpy rm {entry.name}`")
    return section


def disk() -> Section:
    section = Section()
    home = config.home()
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    section.facts["folder"] = str(home)
    section.facts["free bytes"] = free
    if free < LEAST_FREE_BYTES:
        section.problem(f"{existing} has {free / 1e6:,.0f} MB free", "make room (`ggpy rm` deletes models), or set "
                        "GGPY_HOME to a folder on a larger disk")
    return section
