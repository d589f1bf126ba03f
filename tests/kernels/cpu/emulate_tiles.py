"""Runs kernels of the level amx with emulated tiles, and compares their bits with those of avx512vnni.

In a process of its own with GGPY_CPU=avx512vnni: `python -m tests.kernels.cpu.emulate_tiles Q4_K Q6_K ...`. It prints
the name of each kernel and the numbers of products in tiles, and fails at the first difference or fault.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ggpy.gguf import TensorType
from ggpy.kernels.cpu import level, object_loader
from ggpy.kernels.cpu.arguments import CHUNK, EXPERT_LINEAR, argument_block
from ggpy.kernels.cpu.packing import EXPANDED, packing_of
from ggpy.kernels.cpu.step import STEP
from tests.kernels.cpu.test_formats import Kernels, assert_bits, random_rows, random_x
from tests.kernels.cpu.tile_unit import PREFIX, TileUnit

N_ROWS = (1, 15, 16, 17, 31, 32, 33, 47)
N_OUT = 39                      # three groups, the last of them broken
SCRATCH_BYTES = 1 << 17
Float32 = npt.NDArray[np.float32]


class EmulatedKernels:
    """`run(name, block, **step_fields)` runs kernels; within `emulated`, those of the level amx."""

    def __init__(self) -> None:
        self.unit = TileUnit()
        self._emulates = False
        self._entries: dict[tuple[str, bool], int] = {}
        self._engines: list[object] = []            # who own the code

    @contextmanager
    def emulated(self) -> Iterator[None]:
        self.unit.n_products = 0
        self._emulates = True
        yield
        self._emulates = False
        assert not self.unit.faults, self.unit.faults[:3]
        assert self.unit.is_released

    def run(self, name: str, block: npt.NDArray[np.int64], n_threads: int = 1, **step_fields: int) -> None:
        """Two items, one after the other: tiles have to be there for both."""
        emulates = self._emulates and name.endswith("linear")
        if (name, emulates) not in self._entries:
            self._entries[name, emulates] = self._emulated(name) if emulates else object_loader.addresses([name])[name]
        scratch = np.full(SCRATCH_BYTES, 0xAA, np.uint8)
        fields = dict.fromkeys(STEP._fields, 0) | {"scratch": scratch.ctypes.data} | step_fields
        step = argument_block(STEP, **fields)
        entry = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self._entries[name, emulates])
        for item in range(2):
            entry(block.ctypes.data, step.ctypes.data, item, 2)

    def _emulated(self, name: str) -> int:
        import llvmlite.binding as llvm

        from ggpy.kernels.cpu import tiles
        from ggpy.kernels.cpu.compile import compile_kernel

        assert tiles.HAS_TILES
        tiles.INSTRUCTIONS = PREFIX
        for symbol, address in self.unit.symbols().items():
            llvm.add_symbol(symbol, address)
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(compile_kernel(name)))
        engine.finalize_object()
        self._engines.append(engine)
        return int(engine.get_function_address("ggpy_kernel"))


def compare_linear(emulator: EmulatedKernels, tensor_type: TensorType, name: str) -> None:
    """"linear" or "mapped_linear" for all numbers of rows, and of weight blocks: odd ones, and more than eight."""
    kernels = Kernels(emulator.run)
    size, counts = tensor_type.block_size, []
    for n_in in (size, 3 * size, -(-11 * 32 // size) * size):
        rows, x = random_rows(tensor_type, N_OUT, n_in, 0.5), random_x(max(N_ROWS), n_in)
        weights = rows if name == "mapped_linear" else kernels.pack(rows, tensor_type)

        def product(x: Float32, weights: npt.NDArray[np.uint8] = weights) -> Float32:
            if name == "mapped_linear":
                return kernels.mapped_linear(weights, tensor_type, x)
            return kernels.linear(weights, tensor_type, x, N_OUT)

        for n_rows in N_ROWS:
            with emulator.emulated():
                out = product(x[:n_rows])
            assert_bits(out, product(x[:n_rows]))
            counts.append(emulator.unit.n_products)
            assert (emulator.unit.n_products > 0) == (n_rows >= 16)
    print(f"{packing_of(tensor_type).module}.{name}", counts)


def compare_experts(emulator: EmulatedKernels, tensor_type: TensorType) -> None:
    """Two experts with 47 and 17 slots, in chunks of 32, 15 and 17."""
    kernels, packing, n_in = Kernels(emulator.run), packing_of(tensor_type), 3 * tensor_type.block_size
    rows, x = random_rows(tensor_type, 2 * N_OUT, n_in, 0.5), random_x(64, n_in)
    packed = [kernels.pack(rows[i: i + N_OUT], tensor_type) for i in (0, N_OUT)]
    weight, n_blocks = np.concatenate(packed), packing.n_blocks(n_in)
    parts = [kernels.quantize(part, n_blocks) for part in (x[:47], x[47:])]
    int8 = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    chunks = np.array([[0, 0, 32], [0, 32, 15], [1, 47, 17]], np.int64)
    assert CHUNK._fields == ("expert", "first", "n_rows")
    slot_order, n_chunks = np.arange(64, dtype=np.int32)[::-1].copy(), np.array([3], np.int64)
    bias = np.linspace(-1, 1, 2 * N_OUT, dtype=np.float32)

    def product() -> Float32:
        out = np.full((64, N_OUT), np.nan, np.float32)
        block = argument_block(
            EXPERT_LINEAR, weight=weight.ctypes.data, expert_bytes=packed[0].nbytes,
            group_bytes=packing.group_bytes(n_in), n_out=N_OUT, n_used=1, n_blocks=n_blocks, out=out.ctypes.data,
            bias=bias.ctypes.data, experts=0, slot_order=slot_order.ctypes.data, chunks=chunks.ctypes.data,
            n_chunks=n_chunks.ctypes.data, n_rows=STEP.n_tokens,
            **{field: array.ctypes.data for field, array in int8.items()})
        emulator.run(f"{packing.module}.expert_linear", block, n_tokens=64)
        return out

    with emulator.emulated():
        out = product()
    assert_bits(out, product())
    assert not np.isnan(out).any()
    assert emulator.unit.n_products > 0
    print(f"{packing.module}.expert_linear", emulator.unit.n_products)


def main() -> None:
    types = [TensorType[name] for name in sys.argv[1:]]
    modules = {packing_of(t).module: packing_of(t) for t in types}
    object_loader.addresses(["quantize.quantize", *(
        f"{module}.{name}" for module, packing in modules.items()
        for name in ("linear", "expert_linear", *(("pack", "mapped_linear") if packing is not EXPANDED else ())))])
    level.current_level = lambda: next(each for each in level.LEVELS if each.name == "amx")
    emulator = EmulatedKernels()
    for tensor_type in types:
        compare_linear(emulator, tensor_type, "linear")
        compare_experts(emulator, tensor_type)
        if packing_of(tensor_type) is not EXPANDED:
            compare_linear(emulator, tensor_type, "mapped_linear")


if __name__ == "__main__":
    main()
