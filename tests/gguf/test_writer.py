"""The writer refuses what a reader would, streams, and never leaves half a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy.errors import GGUFError
from ggpy.gguf import GGUFFile, GGUFWriter, TensorType, ValueType


@pytest.fixture
def writer(tmp_path: Path) -> GGUFWriter:
    """A writer of x.gguf in an empty folder."""
    return GGUFWriter(tmp_path / "x.gguf")


def reread(writer: GGUFWriter) -> GGUFFile:
    writer.write()
    return GGUFFile(writer.path)


@pytest.mark.parametrize(("value", "value_type"), [
    (True, ValueType.BOOL), (7, ValueType.UINT32), (-7, ValueType.INT32), (2**32, ValueType.INT64),
    (2**63, ValueType.UINT64), (0.5, ValueType.FLOAT32), ("x", ValueType.STRING), (b"\xff", ValueType.STRING),
    (np.uint8(3), ValueType.UINT8), (np.float64(0.1), ValueType.FLOAT64), (np.bool_(True), ValueType.BOOL),
    ([1, -1], ValueType.INT32), ([1, 2**31], ValueType.UINT32), ([-1, 2**31], ValueType.INT64),
    ([0.5, 1], ValueType.FLOAT32), (["a", b"b"], ValueType.STRING), ([True], ValueType.BOOL), ([[1]], ValueType.ARRAY),
    (np.zeros(2, np.int16), ValueType.INT16), (np.zeros(2, ">i4"), ValueType.INT32),
], ids=repr)
def test_types_are_inferred(writer: GGUFWriter, value: Any, value_type: ValueType) -> None:
    """Without a type the value says which."""
    writer.add("k", value)
    assert reread(writer).metadata.value_type("k") is value_type


def test_byte_order_and_strides_of_arrays_do_not_matter(writer: GGUFWriter) -> None:
    """Big-endian and strided input is stored as little-endian rows."""
    writer.add("k", np.arange(6, dtype=">u4")[::2])
    writer.add_tensor("t", np.arange(6, dtype=">f4").reshape(2, 3).T)
    file = reread(writer)
    assert file.metadata["k"].tolist() == [0, 2, 4]
    assert file.tensors["t"].rows().view("<f4").tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(("value", "value_type", "message"), [
    (256, ValueType.UINT8, "found .256., which UINT8 does not hold"),
    (-1, ValueType.UINT64, "which UINT64 does not hold"),
    (2**64, ValueType.UINT64, "which UINT64 does not hold"),
    (1.5, ValueType.INT32, "which INT32 does not hold"),
    (1, ValueType.BOOL, "which BOOL does not hold"),
    (True, ValueType.UINT32, "which UINT32 does not hold"),
    (1e300, ValueType.FLOAT32, "too large for FLOAT32"),
    ("x", ValueType.UINT32, "which UINT32 does not hold"),
    (3, ValueType.STRING, "found int 3, expected a string"),
    ([[1], [2, 3]], ValueType.INT32, "expected INT32"),
    (3, ValueType.ARRAY, "expected ARRAY"),
    ([3], ValueType.ARRAY, "found 3, expected an array"),
    (["x", 3], None, "found int, str, expected"),
    ([], None, "found an empty list without a value_type"),
    ([[[[[1]]]]], None, "nested more than 4 deep"),
    (np.zeros((2, 2)), None, r"found shape \(2, 2\), expected one dimension"),
    (np.zeros(2, np.float16), None, "found values of float16, for which GGUF has no type"),
    (None, None, "found NoneType, expected"),
    ("\ud800", None, "lone surrogates"),
], ids=repr)
def test_values_that_do_not_fit_are_refused(
    writer: GGUFWriter, value: Any, value_type: ValueType | None, message: str
) -> None:
    """Nothing is wrapped, truncated or converted behind the caller's back."""
    with pytest.raises(GGUFError, match=rf"x.gguf: key 'k': .*{message}"):
        writer.add("k", value, value_type)


@pytest.mark.parametrize(("key", "message"), [
    ("", "has 0 bytes, expected 1 to 65,535"), ("k" * 65536, "has 65,536 bytes"), ("a\0", "no NUL"),
    ("\udcff", "UTF-8"),
], ids=["empty", "long", "NUL", "surrogate"])
def test_bad_keys_are_refused(writer: GGUFWriter, key: str, message: str) -> None:
    """The bounds are the reader's."""
    with pytest.raises(GGUFError, match=message):
        writer.add(key, 1)


def test_a_key_or_tensor_is_added_once(writer: GGUFWriter) -> None:
    """A second value is a mistake of the caller, not an update."""
    writer.add("k", 1)
    writer.add_tensor("t", np.zeros(1, np.float32))
    with pytest.raises(GGUFError, match="key 'k' was added before"):
        writer.add("k", 1)
    with pytest.raises(GGUFError, match="tensor 't' was added before"):
        writer.add_tensor("t", np.zeros(1, np.float32))


@pytest.mark.parametrize(("data", "type_", "shape", "message"), [
    (np.zeros(3, np.uint8), None, None, "found uint8 data, expected floats"),
    (np.zeros(3, np.uint8), TensorType.Q8_0, None, "found rows of 3 bytes, expected a multiple of 34"),
    (np.zeros(3, np.float32), TensorType.Q8_0, None, "found float32 data for type Q8_0; expected its blocks as uint8"),
    (np.zeros(34, np.uint8), TensorType.Q8_0, (64,), r"found shape \(64,\) for data of 32 weights"),
    (np.zeros(34, np.uint8), TensorType.Q8_0, (2, 16), "found rows of 16 weights, expected a multiple of 32"),
    (np.zeros(0, np.float32), None, None, r"found shape \(0,\), expected 1 to 4 dimensions, none of 0"),
    (np.zeros((), np.float32), None, None, r"found shape \(\), expected 1 to 4"),
    (np.zeros((1,) * 5, np.float32), None, None, r"found shape \(1, 1, 1, 1, 1\), expected 1 to 4"),
    ([b"x"], TensorType.I8, None, "streamed data says neither, expected a type and a shape"),
    ([b"x"], None, (1,), "streamed data says neither, expected a type and a shape"),
])
def test_tensors_that_do_not_fit_are_refused(
    writer: GGUFWriter, data: Any, type_: TensorType | None, shape: tuple[int, ...] | None, message: str
) -> None:
    """Type, shape and data must agree."""
    with pytest.raises(GGUFError, match=f"x.gguf: tensor 't': {message}"):
        writer.add_tensor("t", data, type_, shape)


def test_a_tensor_name_has_at_most_63_bytes(writer: GGUFWriter) -> None:
    """llama.cpp keeps 64 with the closing NUL."""
    writer.add_tensor("n" * 63, np.zeros(1, np.float32))
    with pytest.raises(GGUFError, match="has 64 bytes, expected 1 to 63"):
        writer.add_tensor("n" * 64, np.zeros(1, np.float32))


def test_a_streamed_tensor_is_produced_while_the_file_is_written(writer: GGUFWriter) -> None:
    """The function runs at write(), and its chunks may be bytes or arrays of any length."""
    calls = []

    def chunks() -> Iterator[Any]:
        calls.append("run")
        yield b"\0\0\x80\x3f"                       # 1.0
        yield b""
        yield np.array([2.0, 3.0], np.float32)

    writer.add_tensor("t", chunks, TensorType.F32, (3,))
    assert calls == []
    assert reread(writer).tensors["t"].data.view("<f4").tolist() == [1, 2, 3]
    assert calls == ["run"]


@pytest.mark.parametrize(("chunks", "message"), [
    ([b"abc"], "found 3 bytes, expected 4"),
    ([b"abc", b"de"], "found more data than its 4 bytes"),
])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    writer: GGUFWriter, chunks: list[bytes], message: str
) -> None:
    """A stream of the wrong size is found out before the file gets its name."""
    writer.path.write_bytes(b"old")
    writer.add_tensor("t", chunks, TensorType.I8, (4,))
    with pytest.raises(GGUFError, match=f"tensor 't': {message}"):
        writer.write()
    assert writer.path.read_bytes() == b"old"
    assert list(writer.path.parent.iterdir()) == [writer.path]


def test_a_file_that_is_open_may_be_replaced(writer: GGUFWriter) -> None:
    """Views of the old file keep its content."""
    writer.add_tensor("t", np.ones(2, np.float32))
    old = reread(writer)
    second = GGUFWriter(writer.path)
    second.add_tensor("t", np.zeros(2, np.float32))
    second.write()
    assert old.tensors["t"].data.view("<f4").tolist() == [1, 1]
    assert GGUFFile(writer.path).tensors["t"].data.view("<f4").tolist() == [0, 0]


def test_tensors_start_at_multiples_of_the_alignment(tmp_path: Path) -> None:
    """The alignment is written down for readers, and copied metadata may set it too."""
    writer = GGUFWriter(tmp_path / "x.gguf", alignment=256)
    copied = GGUFWriter(tmp_path / "y.gguf")
    copied.add("general.alignment", 256)
    for each in (writer, copied):
        each.add_tensor("a", np.ones(3, np.float32))
        each.add_tensor("b", np.ones(3, np.float32))
        file = reread(each)
        assert file.alignment == file.metadata["general.alignment"] == 256
        assert [t.offset % 256 for t in file.tensors.values()] == [0, 0]
        assert file.size_bytes % 256 == 0


@pytest.mark.parametrize("alignment", [0, 4, 48, 1 << 25])
def test_odd_alignments_are_refused(tmp_path: Path, alignment: int) -> None:
    """The bounds are the reader's."""
    with pytest.raises(GGUFError, match="expected a power of two from 8"):
        GGUFWriter(tmp_path / "x.gguf", alignment=alignment)


def test_versions_other_than_2_and_3_are_refused(tmp_path: Path) -> None:
    """1 has other field sizes."""
    with pytest.raises(GGUFError, match="cannot write version 1"):
        GGUFWriter(tmp_path / "x.gguf", version=1)
