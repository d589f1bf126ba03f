"""Reading sound files: values, tensors, split models."""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ggpy.errors import GGUFError
from ggpy.gguf import GGUFFile, GGUFWriter, StringArray, TensorType, ValueType


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """A file of two keys and two tensors, byte by byte: 2 x 3 float16 weights and one block of Q8_0."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
    keys = string(b"n") + struct.pack("<Ii", 5, -7) + string(b"words") + struct.pack("<IIQ", 9, 8, 2)
    keys += string(b"a\xff") + string("ü".encode())
    infos = string(b"first") + struct.pack("<IQQIQ", 2, 3, 2, 1, 0)
    infos += string(b"second") + struct.pack("<IQIQ", 1, 32, 8, 32)
    first = np.arange(6, dtype="<f2").tobytes()
    second = struct.pack("<e32b", 0.5, *range(32))
    start = header + keys + infos
    path = tmp_path / "hand.gguf"
    path.write_bytes(start.ljust(-(-len(start) // 32) * 32, b"\0") + first.ljust(32, b"\0") + second)
    return path


def test_a_file_made_by_hand_reads_as_written(by_hand: Path) -> None:
    """Shapes come in NumPy order, offsets absolute, bytes straight from the file."""
    file = GGUFFile(by_hand)
    assert (file.version, file.alignment, file.size_bytes) == (3, 32, by_hand.stat().st_size)
    assert list(file.tensors) == ["first", "second"]
    first, second = file.tensors.values()
    assert (first.type, first.shape, first.n_elements, first.size_bytes) == (TensorType.F16, (2, 3), 6, 12)
    assert first.rows().view("<f2").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (second.type, second.shape, second.offset) == (TensorType.Q8_0, (32,), first.offset + 32)
    assert second.data[2:].tolist() == list(range(32))
    assert file.metadata["n"] == -7


def test_bytes_that_are_not_utf8_survive_decoding(by_hand: Path) -> None:
    """A stray byte of a token becomes a lone surrogate, which encodes back to the byte."""
    words = GGUFFile(by_hand).metadata["words"]
    assert words.tolist() == ["a\udcff", "ü"]
    assert words.bytes(0) == b"a\xff"
    assert words[0].encode("utf-8", "surrogateescape") == b"a\xff"


def test_tensor_data_is_a_read_only_view_of_the_file(by_hand: Path) -> None:
    """Two looks at a tensor share memory, and nobody can write to it."""
    tensor = GGUFFile(by_hand).tensors["first"]
    assert np.shares_memory(tensor.data, tensor.rows())
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1


def test_views_outlive_the_file_object(by_hand: Path) -> None:
    """The mapping stays as long as a view of it."""
    data = GGUFFile(by_hand).tensors["second"].data
    assert data[2:].tolist() == list(range(32))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., GGUFFile]:
    """Writes keys, given as (value, type) or a value, and opens the file."""
    def write_keys(**keys: object) -> GGUFFile:
        writer = GGUFWriter(tmp_path / "keys.gguf")
        for key, value in keys.items():
            writer.add(key, *value) if isinstance(value, tuple) else writer.add(key, value)
        writer.write()
        return GGUFFile(writer.path)
    return write_keys


@pytest.mark.parametrize(("value_type", "value"), [
    (ValueType.UINT8, 255), (ValueType.INT8, -128), (ValueType.UINT16, 65535), (ValueType.INT16, -32768),
    (ValueType.UINT32, 2**32 - 1), (ValueType.INT32, -(2**31)), (ValueType.UINT64, 2**64 - 1),
    (ValueType.INT64, -(2**63)), (ValueType.FLOAT32, 0.25), (ValueType.FLOAT64, 0.1), (ValueType.BOOL, True),
    (ValueType.BOOL, False), (ValueType.STRING, "naïve"), (ValueType.STRING, ""),
], ids=lambda v: v.name if isinstance(v, ValueType) else repr(v))
def test_scalars_keep_value_and_type(write: Callable[..., GGUFFile], value_type: ValueType, value: object) -> None:
    """The extremes of every type come back as plain Python values, alone and in an array."""
    metadata = write(one=(value, value_type), many=([value, value], value_type)).metadata
    assert metadata["one"] == value
    assert type(metadata["one"]) is type(value)
    assert metadata.get_list("many") == [value, value]
    assert metadata.value_type("one") is metadata.value_type("many") is value_type


def test_number_arrays_are_views_of_the_file(write: Callable[..., GGUFFile]) -> None:
    """An array of numbers is read-only and keeps its dtype; bools are np.bool_."""
    metadata = write(i=np.arange(5, dtype=np.int64), b=[True, False]).metadata
    assert metadata["i"].dtype == np.dtype("<i8")
    assert not metadata["i"].flags.owndata
    assert not metadata["i"].flags.writeable
    assert metadata["b"].dtype == np.bool_
    assert metadata["b"].tolist() == [True, False]


def test_arrays_of_arrays_are_lists(write: Callable[..., GGUFFile]) -> None:
    """Inner arrays may differ in length and type."""
    value = write(nested=[[1, 2, 3], ["x"], [[0.5]]]).metadata["nested"]
    assert value[0].tolist() == [1, 2, 3]
    assert value[1].tolist() == ["x"]
    assert value[2][0].tolist() == [0.5]


def test_a_string_array_is_a_sequence(write: Callable[..., GGUFFile]) -> None:
    """Indexing counts from either end, slices are lists, and an empty array is empty."""
    metadata = write(words=["a", "", "ccc"], none=([], ValueType.STRING)).metadata
    words = metadata["words"]
    assert isinstance(words, StringArray)
    assert (len(words), words[0], words[-1], words[1:]) == (3, "a", "ccc", ["", "ccc"])
    assert list(words) == ["a", "", "ccc"]
    assert "ccc" in words
    assert words.index("ccc") == 2
    assert metadata["none"].tolist() == []
    for i in (3, -4):
        with pytest.raises(IndexError, match="of an array of 3"):
            words.bytes(i)


def test_metadata_is_a_mapping_in_file_order(write: Callable[..., GGUFFile]) -> None:
    """Iteration, membership and get are those of a dict, and a value is decoded once."""
    metadata = write(z=1, a="x", words=["y"]).metadata
    assert list(metadata) == ["z", "a", "words"]
    assert len(metadata) == 3
    assert "z" in metadata
    assert "q" not in metadata
    assert metadata.get("q", 5) == 5
    assert metadata["words"] is metadata["words"]
    with pytest.raises(KeyError):
        metadata["q"]


def test_getters_return_their_type_or_the_default(write: Callable[..., GGUFFile]) -> None:
    """Each getter finds its value, makes a float of an integer, and falls back when told to."""
    metadata = write(i=3, f=0.5, s="x", b=True, l=[1]).metadata
    assert (metadata.get_int("i"), metadata.get_float("f"), metadata.get_str("s")) == (3, 0.5, "x")
    assert metadata.get_bool("b") is True
    assert metadata.get_list("l") == [1]
    assert (metadata.get_float("i"), type(metadata.get_float("i"))) == (3.0, float)
    assert metadata.get_int("q", None) is None
    assert metadata.get_float("q", None) is None
    assert metadata.get_list("q", [2]) == [2]


@pytest.mark.parametrize(("getter", "key", "message"), [
    ("get_int", "f", r"keys.gguf: key 'f' at byte .*: found FLOAT32, expected an integer"),
    ("get_int", "b", r"found BOOL, expected an integer"),
    ("get_float", "s", r"found STRING, expected a float"),
    ("get_float", "b", r"found BOOL, expected a float"),
    ("get_str", "i", r"found UINT32, expected a string"),
    ("get_str", "l", r"found an array of 2 INT32, expected a string"),
    ("get_bool", "i", r"found UINT32, expected a bool"),
    ("get_list", "s", r"found STRING, expected an array"),
    ("get_int", "gone", r"key 'gone' is missing, expected an integer"),
])
def test_getters_name_file_key_found_and_expected(
    write: Callable[..., GGUFFile], getter: str, key: str, message: str
) -> None:
    """A value of another type is an error even when it could be converted, and so is a missing key."""
    metadata = write(i=3, f=0.5, s="x", b=True, l=[1, 2]).metadata
    with pytest.raises(GGUFError, match=message):
        getattr(metadata, getter)(key)


def write_split(folder: Path, *, count: int = 3, tensors_count: int = 3, stem: str = "m") -> list[Path]:
    """A model of one float32 tensor per part: t0 = [0, 0], t1 = [1, 1], ..."""
    paths = []
    for i in range(count):
        writer = GGUFWriter(folder / f"{stem}-{i + 1:05d}-of-{count:05d}.gguf")
        if i == 0:
            writer.add("general.architecture", "llama")
        writer.add("split.no", i, ValueType.UINT16)
        writer.add("split.count", count, ValueType.UINT16)
        writer.add("split.tensors.count", tensors_count, ValueType.INT32)
        writer.add_tensor(f"t{i}", np.full(2, i, np.float32))
        writer.write()
        paths.append(writer.path)
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_split_model(tmp_path: Path, given: int) -> None:
    """Metadata is the first part's, tensors are those of all parts, each with its part."""
    paths = write_split(tmp_path)
    file = GGUFFile(paths[given])
    assert file.path == paths[0]
    assert file.paths == tuple(paths)
    assert file.metadata["general.architecture"] == "llama"
    assert file.size_bytes == sum(p.stat().st_size for p in paths)
    assert [(t.part, t.data.view("<f4").tolist()) for t in file.tensors.values()] == [
        (0, [0, 0]), (1, [1, 1]), (2, [2, 2])]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    """The error says which file is not there."""
    paths = write_split(tmp_path)
    paths[1].unlink()
    with pytest.raises(GGUFError, match=r"m-00002-of-00003.gguf: no such file"):
        GGUFFile(paths[2])


def test_a_part_under_the_wrong_name_is_refused(tmp_path: Path) -> None:
    """split.no must be what the name says."""
    paths = write_split(tmp_path)
    paths[2].replace(paths[1])
    with pytest.raises(GGUFError, match=r"00002-of-00003.gguf: found split.no = 2, expected 1"):
        GGUFFile(paths[0])


def test_a_part_whose_name_says_nothing_is_refused(tmp_path: Path) -> None:
    """Without the numbers in its name the other parts cannot be found."""
    moved = write_split(tmp_path)[1].rename(tmp_path / "model.gguf")
    with pytest.raises(GGUFError, match=r"this is part 2 of 3, expected a name that ends in -00001-of-00003"):
        GGUFFile(moved)


def test_parts_of_two_models_are_refused(tmp_path: Path) -> None:
    """The tensors of all parts must be as many as split.tensors.count."""
    paths = write_split(tmp_path, tensors_count=4)
    with pytest.raises(GGUFError, match=r"3 parts hold 3 tensors, expected split.tensors.count = 4"):
        GGUFFile(paths[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    """A name stands in one part only."""
    paths = write_split(tmp_path, count=2, tensors_count=2)
    writer = GGUFWriter(paths[1])
    writer.add("split.no", 1)
    writer.add("split.count", 2)
    writer.add_tensor("t0", np.zeros(2, np.float32))
    writer.write()
    with pytest.raises(GGUFError, match=r"00002-of-00002.gguf: tensor 't0' is also in .*00001-of-00002"):
        GGUFFile(paths[0])


def test_a_name_like_a_part_alone_makes_no_split(tmp_path: Path) -> None:
    """A file without split.count is whole, whatever its name."""
    writer = GGUFWriter(tmp_path / "m-00002-of-00003.gguf")
    writer.add_tensor("t", np.ones(2, np.float32))
    writer.write()
    file = GGUFFile(writer.path)
    file.prefetch(file.tensors["t"])
    assert file.tensors["t"].part == 0


def test_advice_leaves_the_data_as_it_is(tmp_path: Path) -> None:
    """After its pages were given back a tensor reads from the file again, and so do its neighbours."""
    writer = GGUFWriter(tmp_path / "big.gguf")
    n = 3 * mmap.PAGESIZE // 4 + 5
    for name in ("a", "b", "c"):
        writer.add_tensor(name, np.full(n, ord(name), np.float32))
    writer.write()
    file = GGUFFile(writer.path)
    for tensor in file.tensors.values():
        file.prefetch(tensor)
    file.advise_dontneed(file.tensors["b"])
    for name, tensor in file.tensors.items():
        assert (tensor.data.view("<f4") == ord(name)).all()


def test_a_fingerprint_tells_models_apart(tmp_path: Path) -> None:
    """A copy has the same one; a changed key, a changed weight at the start, middle or end another."""
    weights = np.arange(8192, dtype=np.float32).reshape(8, 1024)

    def fingerprint(name: str, *, author: str = "me", changed: int | None = None) -> str:
        values = weights.copy()
        if changed is not None:
            values.reshape(-1)[changed] = -1
        writer = GGUFWriter(tmp_path / f"{name}.gguf")
        writer.add("general.author", author)
        writer.add_tensor("w", values)
        writer.write()
        return GGUFFile(writer.path).fingerprint

    original = fingerprint("a")
    assert fingerprint("b") == original
    others = [fingerprint("c", author="you"), *(fingerprint(f"d{i}", changed=i) for i in (0, 4096, 8191))]
    assert len({original, *others}) == 5
