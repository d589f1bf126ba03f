"""Which instructions the kernels may use: the level of the host, or a lower one chosen by GGPY_CPU.

A level is a named set of LLVM features. Kernels are written once in generic vectors; LLVM lowers those to any level,
and only the few operations in `dot.py` that name an instruction ask the level which form exists. The level amx is
avx512vnni with another way to multiply 16 rows or more (`tile_products.py`); its bits are the same.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from ggpy import config
from ggpy.errors import ConfigError
from ggpy.kernels.cpu.arm import arm_features

X86_64_V3 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
             "movbe")
AVX512VNNI = (*X86_64_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512vnni", "avx512vbmi")

TILES = "amx"           # the level that the operating system has to allow
# Linux on x86-64: the system call, what is asked of it, for what
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Level:
    """`features` are what the level needs of the host; kernels compiled for it may use these and no others.

    `bits` names the level whose results it has, which may be another one.
    """

    name: str
    machine: str
    features: tuple[str, ...]
    bits: str

    def has(self, feature: str) -> bool:
        return feature in self.features


LEVELS = (                                                  # best first within a machine
    Level("amx", "x86_64", (*AVX512VNNI, "amx-tile", "amx-int8"), bits="avx512vnni"),
    Level("avx512vnni", "x86_64", AVX512VNNI, bits="avx512vnni"),
    Level("avxvnni", "x86_64", (*X86_64_V3, "avxvnni"), bits="avxvnni"),
    Level("avx2", "x86_64", X86_64_V3, bits="avx2"),
    Level("portable", "x86_64", (), bits="portable"),
    Level("dotprod", "aarch64", ("neon", "fp-armv8", "dotprod"), bits="dotprod"),
    Level("portable", "aarch64", ("neon", "fp-armv8"), bits="portable"),
)


def host_machine() -> str:
    """The processor family under LLVM's name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@cache
def feature_map() -> Mapping[str, bool]:
    """LLVM's names of features, and whether this processor has them. One that is absent may be there or not."""
    import llvmlite.binding as llvm

    found = dict(llvm.get_host_cpu_features())
    return MappingProxyType(found | arm_features() if host_machine() == "aarch64" else found)


def processor_features() -> frozenset[str]:
    """What this processor can execute, whether or not the operating system allows this process all of it."""
    return frozenset(name for name, present in feature_map().items() if present)


def host_features() -> frozenset[str]:
    """What this processor, under this operating system, can execute in this process, which asks for what it has to."""
    features = processor_features()
    if "amx-tile" in features and tiles_refusal() is not None:
        return frozenset(name for name in features if not name.startswith("amx"))
    return features


@cache
def tiles_refusal() -> str | None:
    """Why the operating system lets no thread of this process use AMX's tiles, None: it does. Linux has to be asked."""
    if sys.platform != "linux":
        return "only Linux is asked for them"
    numbers = map(ctypes.c_long, (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
    allowed = ctypes.CDLL(None, use_errno=True).syscall(*numbers) == 0
    return None if allowed else os.strerror(ctypes.get_errno())


def available_levels() -> tuple[Level, ...]:
    """The levels that this host can execute, best first."""
    return _levels_with(host_features())


def _levels_with(features: frozenset[str]) -> tuple[Level, ...]:
    machine = host_machine()
    levels = tuple(level for level in LEVELS if level.machine == machine and features.issuperset(level.features))
    return levels or (Level("portable", machine, (), bits="portable"),)


def current_level() -> Level:
    """The level to compile for: the one named by GGPY_CPU, else the best of the host.

    Raises ConfigError if GGPY_CPU names a level that this host cannot execute.
    """
    wanted = config.cpu_level()
    if not wanted:
        return available_levels()[0]
    # nobody asks for tiles who does not want them: with them, the system has more to save of every thread
    levels = available_levels() if wanted == TILES else _levels_with(processor_features())
    for level in levels:
        if level.name == wanted:
            return level
    known = ", ".join(level.name for level in available_levels())
    if wanted == TILES and "amx-tile" in processor_features():
        raise ConfigError(f"GGPY_CPU={wanted!r}: the system does not allow tiles: {tiles_refusal()}; this process can "
                          f"run {known}")
    raise ConfigError(f"GGPY_CPU={wanted!r}: this machine can run {known}")
