"""Every integer format: packed, multiplied, and bit for bit what `canonical.py` says."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats import FORMATS, get_format
from ggpy.gguf import TensorType
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import LINEAR, MAPPED_LINEAR, PACK, QUANTIZE, argument_block
from ggpy.kernels.cpu.expand import UNIT, expand
from ggpy.kernels.cpu.packing import EXPANDED, PACKINGS, packing_of
from ggpy.kernels.cpu.step import STEP
from tests.kernels.cpu import canonical

RunKernel = Callable[..., None]
Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

PACKED_TYPES = [t for t, packing in PACKINGS.items() if packing.int8]
TYPES = [t for t, known in FORMATS.items() if known.integers]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compiles all kernels of this file at once, in parallel."""
    linears = {f"{packing_of(t).module}.linear" for t in TYPES}
    of_packed = {f"{packing_of(t).module}.{name}" for t in PACKED_TYPES for name in ("pack", "mapped_linear")}
    object_loader.addresses(["executor.run", "executor.worker", "quantize.quantize", *sorted(linears | of_packed)])


def finite(blocks: npt.NDArray[np.void], tensor_type: TensorType, scales: Callable[..., Float32 | float]) -> Bytes:
    """Rows of bytes of `blocks` (n_out, n_blocks) after their floating scales were set to `scales(shape)`."""
    for name in blocks.dtype.names or ():
        if blocks.dtype[name] in (np.dtype("<f2"), np.dtype("<f4")):
            blocks[name] = np.clip(scales(blocks.shape), -65504, 65504)
    if tensor_type is TensorType.IQ1_M:
        blocks["scales"][..., 3] &= 0x3FFF          # a float16 in four pieces: keep it below 2
    if tensor_type is TensorType.MXFP4:
        blocks["e"] = blocks["e"] % 20 + 110        # an exponent
    return blocks.view(np.uint8)


def random_rows(tensor_type: TensorType, n_out: int, n_in: int, scale: float = 0.01) -> Bytes:
    """Rows (n_out, row_bytes) of random bits with finite scales of about `scale`; the first row is all zeros."""
    layout = get_format(tensor_type).block
    rng = np.random.default_rng([tensor_type, n_out, n_in])
    n_blocks = n_in // tensor_type.block_size
    blocks = rng.integers(0, 256, (n_out, n_blocks * layout.itemsize), dtype=np.uint8).view(layout)
    rows = finite(blocks, tensor_type, lambda shape: rng.normal(0, scale, shape))
    rows[0] = 0
    return rows


def random_x(n_rows: int, n_in: int) -> Float32:
    """Activations (n_rows, n_in) with an outlier, and one block of zeros in the last row."""
    x = np.random.default_rng([n_rows, n_in]).standard_normal((n_rows, n_in)).astype(np.float32)
    x[:, 7] *= 40
    x[-1, :32] = 0
    return x


@dataclass
class Kernels:
    """The kernels under test, on NumPy arrays."""

    run: RunKernel

    def pack(self, rows: Bytes, tensor_type: TensorType, n_threads: int = 1) -> Bytes:
        """Packed groups (n_groups, group_bytes), written over memory full of other bits."""
        n_out, n_in = len(rows), rows.shape[1] // tensor_type.block_bytes * tensor_type.block_size
        packing = packing_of(tensor_type)
        if packing is EXPANDED:
            return expand(rows, tensor_type)
        packed = np.full((-(-n_out // 16), packing.group_bytes(n_in)), 0xAA, np.uint8)
        block = argument_block(PACK, source=rows.ctypes.data, packed=packed.ctypes.data, n_out=n_out, n_in=n_in,
                               row_bytes=rows.shape[1], group_bytes=packing.group_bytes(n_in))
        self.run(f"{packing.module}.pack", block, n_threads=n_threads)
        return packed

    def quantize(self, x: Float32, n_blocks: int) -> dict[str, npt.NDArray[np.generic]]:
        """Rows of activations in the chunked layout of quantize.py, padded to n_blocks blocks a row."""
        n_rows = len(x)
        int8: dict[str, npt.NDArray[np.generic]] = {
            "q": np.full(n_rows * n_blocks * 32, 77, np.int8), "da": np.full(n_rows * n_blocks, 7, np.float32),
            "ys": np.full(n_rows * n_blocks, 7, np.float32), "n16": np.full(n_rows * n_blocks * 2, 7, np.int32)}
        addresses = {name: array.ctypes.data for name, array in int8.items()}
        block = argument_block(QUANTIZE, x=x.ctypes.data, n_blocks=n_blocks, n_filled=x.shape[1] // 32,
                               n_rows=STEP.n_tokens, **addresses)
        self.run("quantize.quantize", block, n_tokens=n_rows)
        return int8

    def linear(self, packed: Bytes, tensor_type: TensorType, x: Float32, n_out: int, n_threads: int = 1,
               bias: Float32 | None = None, residual: Float32 | None = None) -> Float32:
        """Activations (n_rows, n_in) times packed weights, as (n_rows, n_out)."""
        return self._product(LINEAR, "linear", tensor_type, x, n_out, n_threads, weight=packed.ctypes.data,
                             bias=0 if bias is None else bias.ctypes.data,
                             residual=0 if residual is None else residual.ctypes.data)

    def mapped_linear(self, rows: Bytes, tensor_type: TensorType, x: Float32, n_threads: int = 1) -> Float32:
        """The same from rows as they lie in a file."""
        return self._product(MAPPED_LINEAR, "mapped_linear", tensor_type, x, len(rows), n_threads,
                             weight=rows.ctypes.data, row_bytes=rows.shape[1], n_in=x.shape[1], bias=0, residual=0)

    def _product(self, layout: Any, name: str, tensor_type: TensorType, x: Float32, n_out: int, n_threads: int,
                 **fields: int) -> Float32:
        packing = packing_of(tensor_type)
        n_blocks = packing.n_blocks(x.shape[1])
        int8 = self.quantize(x, n_blocks)
        out = np.full((len(x), n_out), np.nan, np.float32)
        block = argument_block(
            layout, group_bytes=packing.group_bytes(x.shape[1]), n_out=n_out, n_blocks=n_blocks, out=out.ctypes.data,
            n_rows=STEP.n_tokens, **{field: array.ctypes.data for field, array in int8.items()}, **fields)
        self.run(f"{packing.module}.{name}", block, n_threads=n_threads, n_tokens=len(x))
        return out


@pytest.fixture(scope="session")
def kernels(run_kernel: RunKernel) -> Kernels:
    return Kernels(run_kernel)


def assert_bits(actual: Float32, expected: Float32) -> None:
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
def test_linear_is_the_canonical_order(kernels: Kernels, tensor_type: TensorType) -> None:
    """Bits are the oracle's for any number of weight rows and of activation rows; rows have an odd number of blocks."""
    n_in = 3 * tensor_type.block_size
    rows, x = random_rows(tensor_type, 37, n_in), random_x(40, n_in)
    expected = canonical.linear(rows, tensor_type, canonical.quantize(x))
    for n_out in (1, 7, 16, 37):
        packed = kernels.pack(rows[:n_out], tensor_type)
        for n_rows in (1, 2, 3, 16, 17, 31, 32, 33, 40):
            out = kernels.linear(packed, tensor_type, x[:n_rows], n_out)
            assert_bits(out, np.ascontiguousarray(expected[:n_rows, :n_out]))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
def test_any_length_of_row(kernels: Kernels, tensor_type: TensorType) -> None:
    """One file block, and more than eight blocks of 32 so that all eight partial sums go round."""
    size = tensor_type.block_size
    for n_in in (size, -(-11 * 32 // size) * size, 8 * size):
        rows, x = random_rows(tensor_type, 17, n_in), random_x(2, n_in)
        assert_bits(kernels.linear(kernels.pack(rows, tensor_type), tensor_type, x, 17),
                    canonical.linear(rows, tensor_type, canonical.quantize(x)))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_no_bit(kernels: Kernels, tensor_type: TensorType, n_threads: int) -> None:
    """Three groups of rows shared by two or three threads, packed and multiplied, are what one thread makes."""
    rows, x = random_rows(tensor_type, 37, 512), random_x(17, 512)
    packed = kernels.pack(rows, tensor_type)
    np.testing.assert_array_equal(kernels.pack(rows, tensor_type, n_threads), packed)
    assert_bits(kernels.linear(packed, tensor_type, x, 37, n_threads), kernels.linear(packed, tensor_type, x, 37))


@pytest.mark.parametrize("tensor_type", PACKED_TYPES, ids=lambda t: t.name)
def test_weights_may_stay_as_they_lie_in_the_file(kernels: Kernels, tensor_type: TensorType) -> None:
    """Mapped weights give the bits of packed ones for any number of rows, with a broken group, and threads."""
    n_in = 3 * tensor_type.block_size
    rows, x = random_rows(tensor_type, 37, n_in), random_x(33, n_in)
    packed = kernels.linear(kernels.pack(rows, tensor_type), tensor_type, x, 37)
    for n_rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33):
        assert_bits(kernels.mapped_linear(rows, tensor_type, x[:n_rows]), packed[:n_rows])
    for n_rows in (1, 33):
        assert_bits(kernels.mapped_linear(rows, tensor_type, x[:n_rows], n_threads=2), packed[:n_rows])


@pytest.mark.parametrize("tensor_type", PACKED_TYPES, ids=lambda t: t.name)
def test_packings_know_which_formats_have_direct_products(tensor_type: TensorType) -> None:
    """`Packing.direct` is what the format's kernels are made of."""
    packing = packing_of(tensor_type)
    assert packing.direct == hasattr(importlib.import_module(f"ggpy.kernels.cpu.{packing.module}"), "direct")


@pytest.mark.parametrize("tensor_type", PACKED_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("n_rows", [1, 6])
def test_rows_in_the_file_may_have_any_length(kernels: Kernels, tensor_type: TensorType, n_rows: int) -> None:
    """One file block and several numbers beyond whole runs of eight; what lies behind the weights takes no part."""
    size = tensor_type.block_size
    for n_blocks in (1, 7, 8, 11, 18):
        x = random_x(n_rows, n_blocks * size)
        followed = np.full((18, n_blocks * tensor_type.block_bytes), 0xFF, np.uint8)
        followed[:17] = random_rows(tensor_type, 17, n_blocks * size)
        packed = kernels.linear(kernels.pack(followed[:17], tensor_type), tensor_type, x, 17)
        assert_bits(kernels.mapped_linear(followed[:17], tensor_type, x), packed)


@pytest.mark.parametrize("tensor_type", PACKED_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_largest_integers_in_the_file_are_exact(kernels: Kernels, tensor_type: TensorType, byte: int) -> None:
    """Weights and integer scales at an end of their range give the bits of packed ones where they lie."""
    layout = get_format(tensor_type).block
    blocks = np.full((16, 512 // tensor_type.block_size * layout.itemsize), byte, np.uint8).view(layout)
    rows = finite(blocks, tensor_type, lambda shape: 1.5)
    x = np.full((2, 512), 3.0, np.float32) * np.array([[1], [-1]], np.float32)
    assert_bits(kernels.mapped_linear(rows, tensor_type, x),
                kernels.linear(kernels.pack(rows, tensor_type), tensor_type, x, 16))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [2.0**-24, 60000.0], ids=["subnormal", "huge"])
def test_extreme_scales_of_weights_and_activations(kernels: Kernels, tensor_type: TensorType, scale: float) -> None:
    """Subnormal and nearly infinite float16 scales, activations down to 1e-30 and up to 1e20."""
    rows = random_rows(tensor_type, 16, 512, scale)
    for magnitude in (1e-30, 1e20):
        x = random_x(3, 512) * np.float32(magnitude)
        assert_bits(kernels.linear(kernels.pack(rows, tensor_type), tensor_type, x, 16),
                    canonical.linear(rows, tensor_type, canonical.quantize(x)))


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
def test_largest_integers_are_exact(kernels: Kernels, tensor_type: TensorType, byte: int) -> None:
    """All weights and integer scales at an end of their range against activations of 127 and -127."""
    layout = get_format(tensor_type).block
    blocks = np.full((16, 512 // tensor_type.block_size * layout.itemsize), byte, np.uint8).view(layout)
    rows = finite(blocks, tensor_type, lambda shape: 1.5)
    x = np.full((2, 512), 3.0, np.float32) * np.array([[1], [-1]], np.float32)
    assert_bits(kernels.linear(kernels.pack(rows, tensor_type), tensor_type, x, 16),
                canonical.linear(rows, tensor_type, canonical.quantize(x)))


@pytest.mark.parametrize("tensor_type", TYPES, ids=lambda t: t.name)
def test_bias_and_residual_are_added_after_the_sum(kernels: Kernels, tensor_type: TensorType) -> None:
    """(sum + bias) + residual, each rounded, in whole and in broken groups."""
    rows, x = random_rows(tensor_type, 21, 256), random_x(5, 256)
    rng = np.random.default_rng(3)
    bias = rng.standard_normal(21).astype(np.float32)
    residual = rng.standard_normal((5, 21)).astype(np.float32)
    packed = kernels.pack(rows, tensor_type)
    plain = kernels.linear(packed, tensor_type, x, 21)
    assert_bits(kernels.linear(packed, tensor_type, x, 21, bias=bias), plain + bias)
    assert_bits(kernels.linear(packed, tensor_type, x, 21, bias=bias, residual=residual), (plain + bias) + residual)


@pytest.mark.parametrize("tensor_type", PACKED_TYPES, ids=lambda t: t.name)
def test_missing_rows_and_blocks_are_packed_as_zeros(kernels: Kernels, tensor_type: TensorType) -> None:
    """Seven rows of three blocks are packed like sixteen rows of four, the others zeros."""
    n_in = 3 * tensor_type.block_size
    rows = random_rows(tensor_type, 7, n_in)
    full = np.zeros((16, rows.shape[1]), np.uint8)
    full[:7] = rows
    packed = kernels.pack(rows, tensor_type)
    np.testing.assert_array_equal(packed, kernels.pack(full, tensor_type))
    wide = np.pad(full, ((0, 0), (0, tensor_type.block_bytes)))
    np.testing.assert_array_equal(packed[0], kernels.pack(wide, tensor_type)[0, : packed.shape[1]])


@pytest.mark.parametrize("slice_weights", [1, 40 * 256])
def test_expanding_slice_by_slice_changes_nothing(monkeypatch: pytest.MonkeyPatch, slice_weights: int) -> None:
    """Groups expanded one by one or two at a time are those expanded at once."""
    rows = random_rows(TensorType.IQ2_S, 70, 256)
    at_once = expand(rows, TensorType.IQ2_S)
    monkeypatch.setattr("ggpy.kernels.cpu.expand.SLICE_WEIGHTS", slice_weights)
    np.testing.assert_array_equal(expand(rows, TensorType.IQ2_S), at_once)


def test_expanded_groups_hold_weights_and_scales_of_each_row() -> None:
    """Q1_0 by hand: 17 rows of one block of 128 make two groups of two units; row 16 is row 0 of the second group."""
    blocks = np.zeros((17, 1), get_format(TensorType.Q1_0).block)
    blocks["d"][16] = 0.5
    blocks["qs"][16, 0, 0] = 0b00100000             # weight 5 is +d, all others are -d
    packed = expand(blocks.view(np.uint8), TensorType.Q1_0).view(UNIT)
    assert packed.shape == (2, 2)
    assert packed["scale"][1, 0, :, :, 0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert packed["q"][1, 0, 0, :3, 0].tolist() == [[-1, -1, -1, -1], [-1, 1, -1, -1], [-1, -1, -1, -1]]
    assert not packed["q"][1, :, :, :, 1:].any()
