"""The level amx: tiles are used as a processor wants them, and change no bit. No test needs a processor with AMX."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ggpy.formats import FORMATS
from ggpy.kernels.cpu.level import available_levels
from tests.kernels.cpu.tile_unit import TileUnit

ROOT = Path(__file__).parents[3]
LEVEL_NAMES = [each.name for each in available_levels()]
KINDS = ["Q4_K", "Q6_K"]            # one scale per 32 weights, and per 16: tiles of whole blocks, and of halves

PRINT_ASSEMBLY = """
import sys
import ggpy.kernels.cpu.level as level
level.current_level = lambda: next(l for l in level.LEVELS if l.name == "amx")
from ggpy.kernels.cpu.compile import assembly
for name in sys.argv[1:]:
    print("kernel", name)
    print(assembly(name))
"""
PRINT_CODE = """
import ggpy.kernels.cpu.level as level
level.current_level = lambda: next(l for l in level.LEVELS if l.name == "amx")
from ggpy.kernels.cpu.compile import _optimised_module
module, machine = _optimised_module("q4_k.linear")
print(module)
print("as assembly")
print(machine.emit_assembly(module))
"""
needs_avx512vnni = pytest.mark.skipif(
    "avx512vnni" not in LEVEL_NAMES, reason="all of the level amx but its tiles needs a processor with avx512vnni")


def run(*command: str) -> str:
    environment = {**os.environ, "GGPY_CPU": "avx512vnni"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False,
                          cwd=ROOT)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@needs_avx512vnni
def test_tiles_give_the_bits_of_vectors() -> None:
    """Kernels of each kind, their tiles emulated: whole and broken chunks of rows, weights in files, and experts."""
    told = run("-m", "tests.kernels.cpu.emulate_tiles", *KINDS)
    assert told.count("linear") == 3 * len(KINDS)


@pytest.mark.slow
@needs_avx512vnni
def test_tiles_give_the_bits_of_vectors_in_every_format() -> None:
    """Those that are expanded among them."""
    types = [t.name for t, known in FORMATS.items() if known.integers]
    assert run("-m", "tests.kernels.cpu.emulate_tiles", *types).count(".linear") == len(types)


@pytest.mark.slow
def test_kernels_compile_for_amx() -> None:
    """Any LLVM emits the level's code: every instruction of tiles is there, and none of them is for the stack."""
    names = ["q4_k.linear", "q6_k.expert_linear", "q8_0.mapped_linear"]
    kernels = run("-c", PRINT_ASSEMBLY, *names, "quantize.quantize").split("kernel ")[1:]
    for code in kernels:
        used = set(re.findall(r"\b(ldtilecfg|tile\w+|tdp\w+)\b", code))
        wanted = {"ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", "tdpbssd"}
        assert used == (wanted if code.startswith(tuple(names)) else set())
        assert not re.search(r"tile(loadd|stored)\b.*%rsp", code)


def in_blocks(code: str, between: str, instruction: str, tile: str) -> list[list[str]]:
    """The instructions of tiles, each with the numbers of its tiles, in each block of code that has any; sorted."""
    found = [[" ".join([name.removesuffix("64"), *re.findall(tile, operands)])
              for name, operands in re.findall(instruction, block, flags=re.MULTILINE)]
             for block in re.split(between, code, flags=re.MULTILINE)]
    return sorted(filter(None, found))


@pytest.mark.slow
def test_instructions_of_tiles_stay_in_the_order_of_the_kernel() -> None:
    """In every block between two jumps: what waits for what, between tiles and memory, is told by their order alone."""
    code, assembly = run("-c", PRINT_CODE).split("as assembly")
    calls = in_blocks(code, r"^[\w.\"-]+:", r"call void @llvm\.x86\.(ldtilecfg|tile\w+|tdpbssd)\(([^)]*)", r"\bi8 (\d)")
    emitted = in_blocks(assembly, r"^\.LBB\w+:|^\tj\w+\t", r"^\t(ldtilecfg|tile\w+|tdpbssd)(.*)$", r"%tmm(\d)")
    # what is added to stands last there, not first
    emitted = [[re.sub(r"tdpbssd (.) (.) (.)", r"tdpbssd \3 \2 \1", each) for each in block] for block in emitted]
    assert max(map(len, calls)) > 5
    assert emitted == calls


def configured(*shapes: tuple[int, int]) -> TileUnit:
    """A unit whose first tiles have these numbers of rows and bytes."""
    unit, config = TileUnit(), np.zeros(64, np.uint8)
    config[0] = 1
    for k, (n_rows, n_bytes) in enumerate(shapes):
        config[16 + 2 * k], config[48 + k] = n_bytes, n_rows
    unit.call("ldtilecfg", config.ctypes.data)
    return unit


def test_emulated_product_by_hand() -> None:
    """Two rows of activations times four weights of each of two rows, added twice."""
    a, w = np.array([[1, 2, 3, 4], [-1, 0, 0, -128]], np.int8), np.array([[1, 1, 1, 1, -2, 0, 0, 127]], np.int8)
    out = np.zeros((2, 2), np.int32)
    unit = configured((2, 8), (2, 4), (1, 8))
    unit.call("tilezero", 0)
    unit.call("tileloadd64", 1, a.ctypes.data, 4)
    unit.call("tileloadd64", 2, w.ctypes.data, 8)
    unit.call("tdpbssd", 0, 1, 2)
    unit.call("tdpbssd", 0, 1, 2)
    unit.call("tilestored64", 0, out.ctypes.data, 8)
    assert unit.faults == []
    assert out.tolist() == [[20, 2 * (-2 + 508)], [2 * (-1 - 128), 2 * (2 - 16256)]]


@pytest.mark.parametrize(("instruction", "args", "fault"), [
    ("tilezero", (3,), "tile 3 is not configured"), ("tdpbssd", (0, 1, 1), "named twice"),
    ("tdpbssd", (0, 2, 1), "into"), ("tdpbssd", (0, 1, 2), "nothing was put into tile 1"),
    ("tilestored64", (0, 0, 0), "nothing was put into tile 0")])
def test_emulated_tiles_refuse_what_a_processor_does(instruction: str, args: tuple[int, ...], fault: str) -> None:
    """Tiles that do not fit together, or that hold nothing."""
    unit = configured((2, 8), (2, 4), (1, 8))
    unit.call(instruction, *args)
    assert fault in unit.faults[0]


def test_emulated_tiles_want_a_configuration() -> None:
    """None yet, one that is released, one of tiles that are too large."""
    unit = TileUnit()
    unit.call("tilezero", 0)
    released = configured((2, 8))
    released.call("tilerelease")
    released.call("tilezero", 0)
    assert "not configured" in unit.faults[0]
    assert "not configured" in released.faults[0]
    assert "17 rows" in configured((17, 8)).faults[0]
