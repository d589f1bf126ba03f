"""Which instructions the kernels may use: the level of the host, or a lower one chosen by GGPY_CPU.

A level is a named set of LLVM features. Kernels are written once in generic vectors; LLVM lowers those to any level,
and only the few operations in `dot.py` that name an instruction ask the level which form exists. The level amx is
avx512vnni with another way to multiply 16 rows or more (`tile_products.py`); its bits are the same.
"""

import ctypes
import platform
import sys
from dataclasses import dataclass
from functools import cache

from ggpy import config
from ggpy.errors import ConfigError

X86_64_V3 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
             "movbe")
AVX512VNNI = (*X86_64_V3, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512vnni", "avx512vbmi")

# Linux on x86-64: the system call, what is asked of it, for what
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Level:
    """`features` are what the level needs of the host; kernels compiled for it may use these and no others."""

    name: str
    machine: str
    features: tuple[str, ...]

    def has(self, feature: str) -> bool:
        return feature in self.features


LEVELS = (                                                  # best first within a machine
    Level("amx", "x86_64", (*AVX512VNNI, "amx-tile", "amx-int8")),
    Level("avx512vnni", "x86_64", AVX512VNNI),
    Level("avxvnni", "x86_64", (*X86_64_V3, "avxvnni")),
    Level("avx2", "x86_64", X86_64_V3),
    Level("portable", "x86_64", ()),
    Level("dotprod", "aarch64", ("neon", "dotprod", "fp-armv8", "fullfp16")),
    Level("portable", "aarch64", ("neon", "fp-armv8")),
)


def host_machine() -> str:
    """The processor family under LLVM's name."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def host_features() -> frozenset[str]:
    """LLVM's names of what this processor, under this operating system, can execute in this process."""
    import llvmlite.binding as llvm

    features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    if "amx-tile" in features and not may_use_tiles():
        return frozenset(name for name in features if not name.startswith("amx"))
    return features


@cache
def may_use_tiles() -> bool:
    """Whether the operating system lets all threads of this process use AMX's tiles: Linux has to be asked."""
    if sys.platform != "linux":
        return False
    numbers = map(ctypes.c_long, (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
    return bool(ctypes.CDLL(None).syscall(*numbers) == 0)


def available_levels() -> tuple[Level, ...]:
    """The levels that this host can execute, best first."""
    machine, features = host_machine(), host_features()
    levels = tuple(level for level in LEVELS if level.machine == machine and features.issuperset(level.features))
    return levels or (Level("portable", machine, ()),)


def current_level() -> Level:
    """The level to compile for: the one named by GGPY_CPU, else the best of the host.

    Raises ConfigError if GGPY_CPU names a level that this host cannot execute.
    """
    levels = available_levels()
    wanted = config.cpu_level()
    if not wanted:
        return levels[0]
    for level in levels:
        if level.name == wanted:
            return level
    raise ConfigError(f"GGPY_CPU={wanted!r}: this machine can run {', '.join(level.name for level in levels)}")
