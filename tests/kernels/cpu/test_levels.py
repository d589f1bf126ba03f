"""Levels below the host's best, and of another machine: the same tests pass, and the code is what it should be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ggpy.kernels.cpu.level import available_levels, host_machine

AARCH64 = 183           # e_machine of an ELF file
LOWER_LEVELS = [level.name for level in available_levels()[1:]]

COMPILE_FOR_NEON = """
import sys
import ggpy.kernels.cpu.level as level
level.current_level = lambda: next(l for l in level.LEVELS if l.name == "dotprod")
from ggpy.kernels.cpu.compile import compile_kernel
for name in sys.argv[2:]:
    open(f"{sys.argv[1]}/{name}", "wb").write(compile_kernel(name))
"""
SDOT = bytes([0x00, 0x94, 0x80, 0x4E])      # sdot v0.4s, v0.16b, v0.16b, its register fields all zero
SDOT_MASK = bytes([0x00, 0xFC, 0xE0, 0xFF])


@pytest.mark.slow
@pytest.mark.parametrize("level", LOWER_LEVELS)
def test_kernels_are_right_on_lower_levels(level: str) -> None:
    """All kernel tests pass with the instructions of that level alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(Path(__file__).parent)]
    done = subprocess.run(command, env={**os.environ, "GGPY_CPU": level}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("level", LOWER_LEVELS)
def test_backend_is_right_on_lower_levels(level: str) -> None:
    """llama.cpp's logits of tiny models, and equal bits for all chunks, threads and layouts."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/backends/test_cpu.py", "-k",
               "llama or gemma3 or qwen3moe"]
    done = subprocess.run(command, env={**os.environ, "GGPY_CPU": level}, capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(host_machine() == "aarch64", reason="this machine runs that level itself")
def test_kernels_compile_for_neon(tmp_path: Path) -> None:
    """An x86 machine can emit the Arm code of a model's kernels, and integer products use sdot there."""
    names = ["executor.run", "executor.worker", "quantize.quantize", "q4_k.linear", "q8_0.linear", "q4_k.mapped_linear",
             "norm.rms", "kv_store.store_f16_f16", "kv_store.store_q8_0_q8_0", "attention.attend_q8_0_q8_0",
             "attention.combine"]
    subprocess.run([sys.executable, "-c", COMPILE_FOR_NEON, str(tmp_path), *names], check=True)
    for name in names:
        code = (tmp_path / name).read_bytes()
        assert int.from_bytes(code[18:20], "little") == AARCH64
        assert (count_sdot(code) > 0) == name.endswith("linear")


def count_sdot(code: bytes) -> int:
    """Words of `code` that are sdot instructions, whatever their registers."""
    pattern, mask = int.from_bytes(SDOT, "little"), int.from_bytes(SDOT_MASK, "little")
    words = (int.from_bytes(code[i: i + 4], "little") for i in range(0, len(code) - 3, 4))
    return sum(word & mask == pattern for word in words)
