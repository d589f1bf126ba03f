"""What a 64-bit Arm processor can execute: LLVM knows nearly nothing of it, so the operating system is asked."""

import ctypes
import sys

from ggpy import machine

ALWAYS = ("neon", "fp-armv8")       # macOS and Windows run on no processor without
LINUX = {"asimd": "neon", "fp": "fp-armv8", "asimddp": "dotprod", "atomics": "lse"}      # as in /proc/cpuinfo
MACOS = {"hw.optional.arm.FEAT_DotProd": "dotprod", "hw.optional.arm.FEAT_LSE": "lse"}
WINDOWS = {43: "dotprod", 34: "lse"}        # PF_ARM_V82_DP and PF_ARM_V81_ATOMIC_INSTRUCTIONS_AVAILABLE of winnt.h


def arm_features() -> dict[str, bool]:
    """LLVM's names of features, and whether this processor has them; what the system does not tell is absent."""
    if sys.platform == "darwin":
        return dict.fromkeys(ALWAYS, True) | {name: machine.sysctl(key) == 1 for key, name in MACOS.items()}
    if sys.platform == "win32":
        is_present = ctypes.windll.kernel32.IsProcessorFeaturePresent
        return dict.fromkeys(ALWAYS, True) | {name: bool(is_present(key)) for key, name in WINDOWS.items()}
    try:
        return linux_features((machine.ROOT / "proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        return {}


def linux_features(cpuinfo: str) -> dict[str, bool]:
    """What /proc/cpuinfo says of all cores: they may be of several kinds, and threads run on any."""
    lines = [line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("Features")]
    return {name: all(key in words for words in lines) for key, name in LINUX.items()} if lines else {}
