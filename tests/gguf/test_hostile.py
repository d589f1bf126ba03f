"""Files that lie about counts, lengths, types, shapes and offsets are refused fast and in little memory."""

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ggpy.errors import GGUFError
from ggpy.gguf import GGUFFile

HUGE = 1 << 60
U8, U32, F32, BOOL, STRING, ARRAY = 0, 4, 6, 7, 8, 9    # value types
Refused = Callable[[bytes], str]


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def pair(key: bytes, value_type: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", value_type) + value


def array(element: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", element, count) + body


def tensor(name: bytes = b"t", dims: tuple[int, ...] = (32,), type_: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_, offset)


def file(*pairs: bytes, tensors: tuple[bytes, ...] = (), data: int = 0, version: int = 3) -> bytes:
    """A file with these keys and tensors and `data` bytes of tensor data."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return header.ljust(-(-len(header) // 32) * 32, b"\0") + bytes(data)


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Opens a file of the given bytes, which must fail, and returns the message behind the path."""
    def open_bytes(raw: bytes) -> str:
        path = tmp_path / "x.gguf"
        path.write_bytes(raw)
        with pytest.raises(GGUFError) as caught:
            GGUFFile(path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ")
        return message.removeprefix(f"{path}: ")
    return open_bytes


def test_the_builder_of_these_tests_makes_sound_files(tmp_path: Path) -> None:
    """With nothing wrong the same bytes open."""
    path = tmp_path / "x.gguf"
    path.write_bytes(file(pair(b"k", U8, b"\1"), tensors=(tensor(), tensor(b"u", offset=128)), data=256))
    assert list(GGUFFile(path).tensors) == ["t", "u"]


@pytest.mark.parametrize(("raw", "message"), [
    (b"", "found 0 bytes, expected a GGUF header of 24"),
    (b"GGUF", "found 4 bytes, expected a GGUF header of 24"),
    (b"GGML" + bytes(20), "is not a GGUF file (it begins with 'GGML', expected 'GGUF' at byte 0)"),
    (b"# ggpy\n\nA GGUF inference engine", "is not a GGUF file (it begins with '# gg', expected 'GGUF' at byte 0)"),
    (b"\x80\x02}q" + bytes(20), r"is not a GGUF file (it begins with '\x80\x02}q', expected 'GGUF' at byte 0)"),
    (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version at byte 4: found 0x3000000, version 3 in big-endian order"),
    (file(version=0), "version at byte 4: found 0, expected version 2 or 3; convert the model again"),
    (file(version=1), "version at byte 4: found 1, expected version 2 or 3; convert the model again"),
    (file(version=4), "version at byte 4: found 4, expected version 2 or 3; update ggpy"),
    (b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0), f"tensor count at byte 8: found {HUGE:,}, expected at most"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), f"key count at byte 16: found {HUGE:,}, expected at most"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + bytes(16), "key count at byte 16: found 2, expected at most 1"),
    (b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + bytes(40), "tensor count at byte 8: found 2, expected at most 1"),
], ids=lambda v: v[:40] if isinstance(v, str) else None)
def test_header_is_checked(refused: Refused, raw: bytes, message: str) -> None:
    """Magic, version and both counts, against the room that the file has."""
    assert message in refused(raw)


@pytest.mark.parametrize(("pairs", "message"), [
    ((pair(b"", U8, b"\1\1"),), "key 0 at byte 24: found a name of 0 bytes, expected 1 to 65,535 bytes"),
    ((pair(b"k" * 65536, U8, b"\1"),), "key 0 at byte 24: found a name of 65,536 bytes"),
    ((pair(b"\xff", U8, b"\1"),), "key 0 at byte 24: found bytes that are no UTF-8"),
    ((pair(b"a\0b", U8, b"\1"),), "key 0 at byte 24: found a NUL character"),
    ((pair(b"k", U8, b"\1"), pair(b"k", U8, b"\1")), "key 1 at byte 38: found 'k' again, expected each key once"),
    ((pair(b"k", 13, b"\1"),), "type of value of 'k' at byte 33: found 13, expected a value type from 0 to 12"),
    ((pair(b"k", 2**32 - 1, b"\1"),), "found 4294967295, expected a value type from 0 to 12"),
    ((struct.pack("<Q", HUGE) + b"kkkkkkkkkk",), f"length of key 0 at byte 24: found {HUGE:,}, expected at most"),
    ((pair(b"k", STRING, struct.pack("<Q", 2**64 - 1)),), f"length of value of 'k' at byte 37: found {2**64 - 1:,}"),
    ((pair(b"k", BOOL, b"\2"),), "bool in value of 'k' at byte 37: found 2, expected 0 or 1"),
    ((pair(b"k", ARRAY, array(BOOL, 3, b"\0\1\3")),), "bool in value of 'k' at byte 51: found 3, expected 0 or 1"),
    ((pair(b"k", ARRAY, array(F32, HUGE)),), f"number of elements of value of 'k' at byte 41: found {HUGE:,}"),
    ((pair(b"k", ARRAY, array(F32, 2**62 + 1)),), f"of value of 'k' at byte 41: found {2**62 + 1:,}"),
    ((pair(b"k", ARRAY, array(STRING, HUGE)),), f"number of elements of value of 'k' at byte 41: found {HUGE:,}"),
    ((pair(b"k", ARRAY, array(ARRAY, HUGE)),), f"number of elements of value of 'k' at byte 41: found {HUGE:,}"),
    ((pair(b"k", ARRAY, array(99, 1)),), "type of elements of value of 'k' at byte 37: found 99"),
    ((pair(b"k", ARRAY, array(STRING, 3, string(b"a") + struct.pack("<Q", HUGE) + bytes(64))),),
     f"length of value of 'k'[1] at byte 58: found {HUGE:,}, expected at most"),
    ((pair(b"k", ARRAY, array(STRING, 3, string(b"a") + struct.pack("<Q", 2**64 - 1) + bytes(64))),),
     f"length of value of 'k'[1] at byte 58: found {2**64 - 1:,}, expected at most"),
    ((pair(b"k", ARRAY, array(STRING, 2, string(b"a") + struct.pack("<Q", 99) + bytes(25))),),
     "length of value of 'k'[1] at byte 58: found 99, expected at most"),
    ((pair(b"k", ARRAY, array(STRING, 3, string(b"a" * 30))),), "length of value of 'k'[2] at byte 95"),
    ((pair(b"k", ARRAY, b"".join(array(ARRAY, 1) for _ in range(5)) + bytes(64)),),
     "value of 'k'[0][0][0][0] at byte 85: found arrays nested 5 deep, expected at most 4"),
], ids=lambda v: v[:60] if isinstance(v, str) else None)
def test_metadata_is_checked(refused: Refused, pairs: tuple[bytes, ...], message: str) -> None:
    """Keys, types, lengths, counts and bools, each named with its byte."""
    assert message in refused(file(*pairs))


def test_a_pair_that_the_file_does_not_finish_is_refused(refused: Refused) -> None:
    """Cut anywhere behind the counts, the header is no header."""
    whole = file(pair(b"key", STRING, string(b"value")), tensors=(tensor(),))
    whole = whole[: 24 + 8 + 3 + 4 + 8 + 5 + len(tensor())]
    for size in range(24, len(whole)):
        assert "at byte" in refused(whole[:size])


@pytest.mark.parametrize(("value_type", "value", "message"), [
    (U32, 0, "found 0, expected a power of two from 8"),
    (U32, 4, "found 4, expected a power of two from 8"),
    (U32, 48, "found 48, expected a power of two from 8"),
    (U32, 1 << 31, "found 2,147,483,648, expected a power of two from 8 to 16,777,216"),
    (5, 32, "found type INT32, expected UINT32"),
    (F32, 32, "found FLOAT32, expected an integer"),
])
def test_alignment_is_checked(refused: Refused, value_type: int, value: int, message: str) -> None:
    """A power of two of type UINT32 from 8 on."""
    alignment = pair(b"general.alignment", value_type, struct.pack("<I", value))
    found = refused(file(alignment, tensors=(tensor(),), data=128))
    assert "'general.alignment'" in found
    assert message in found


@pytest.mark.parametrize(("tensors", "message"), [
    ((tensor(b""),), "name of tensor 0 at byte 24: found a name of 0 bytes, expected 1 to 63 bytes"),
    ((tensor(b"n" * 64),), "name of tensor 0 at byte 24: found a name of 64 bytes"),
    ((tensor(b"\xc3"),), "name of tensor 0 at byte 24: found bytes that are no UTF-8"),
    ((tensor(), tensor(offset=128)), "name of tensor 1 at byte 57: found 't' again, expected each tensor once"),
    ((tensor(dims=()),), "number of dimensions of tensor 't' at byte 33: found 0, expected 1 to 4"),
    ((tensor(dims=(1,) * 5),), "number of dimensions of tensor 't' at byte 33: found 5, expected 1 to 4"),
    ((tensor(dims=(32, 0)),), "dimensions of tensor 't' at byte 37: found [32, 0], expected none of 0"),
    ((tensor(dims=(1 << 32, 1 << 31)),), "dimensions of tensor 't' at byte 37: found [4294967296, 2147483648]"),
    ((tensor(dims=(1 << 32, 1 << 32)),), "fewer than 2**63 weights"),          # 0 in 64 bits
    ((tensor(dims=(2**64 - 1, 2**64 - 1)),), "fewer than 2**63 weights"),      # 1 in 64 bits
    ((tensor(type_=4),), "type of tensor 't' at byte 45: found 4, expected a type that ggpy knows"),
    ((tensor(type_=2**32 - 1),), "found 4294967295, expected a type that ggpy knows"),
    ((tensor(dims=(33,), type_=8),), "first dimension of tensor 't' at byte 37: found 33, expected a multiple of 32"),
    ((tensor(dims=(128, 2), type_=12),), "found 128, expected a multiple of 256, the block of Q4_K"),
    ((tensor(offset=32),), "offset of tensor 't' at byte 49: found 32, expected 0"),
    ((tensor(), tensor(b"u", offset=0)), "offset of tensor 'u' at byte 82: found 0, expected 128"),        # overlap
    ((tensor(), tensor(b"u", offset=127)), "found 127, expected 128"),                                   # misaligned
    ((tensor(), tensor(b"u", offset=160)), "found 160, expected 128"),                                   # a gap
    ((tensor(), tensor(b"u", offset=2**64 - 96)), "expected 128"),                                       # wraps
    ((tensor(), tensor(b"u", offset=128), tensor(b"v", (1024, 1024), offset=256)),
     "tensor 'v' ends at byte 4,194,720 but the file has 1,184; is the download complete?"),
    ((tensor(dims=(1 << 61,)),), "is the download complete?"),
], ids=lambda v: v[:60] if isinstance(v, str) else None)
def test_tensors_are_checked(refused: Refused, tensors: tuple[bytes, ...], message: str) -> None:
    """Names, shapes, types and extents, each named with its byte."""
    assert message in refused(file(tensors=tensors, data=1024))


def test_a_truncated_download_is_named_as_such(refused: Refused) -> None:
    """One byte short of the last tensor is enough."""
    whole = file(tensors=(tensor(),), data=128)
    assert refused(whole[:-1]) == "tensor 't' ends at byte 192 but the file has 191; is the download complete?"


def test_long_names_are_shortened_in_messages(refused: Refused) -> None:
    """A 60 KB key does not flood the log."""
    assert len(refused(file(pair(b"k" * 60000, BOOL, b"\2")))) < 300


@pytest.mark.parametrize("raw", [
    file(pair(b"k", ARRAY, array(STRING, 1 << 24, bytes(8 << 24)))),
    file(pair(b"k", ARRAY, array(ARRAY, 1 << 20, array(U8, 0) * (1 << 20)))),
    b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 20) + bytes(14 << 20),
    b"GGUF" + struct.pack("<IQQ", 3, 1 << 18, 0) + bytes(33 << 18),
], ids=["strings", "nested arrays", "keys", "tensors"])
def test_counts_that_the_file_could_hold_are_bounded_too(refused: Refused, raw: bytes) -> None:
    """A file of hundreds of megabytes of empty items fails before one of them is looked at."""
    tracemalloc.start()
    try:
        message = refused(raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "expected at most" in message
    assert peak < 1 << 20


def test_things_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """A folder, a missing file, and a name that no system allows."""
    with pytest.raises(GGUFError, match="found a folder, expected a GGUF file"):
        GGUFFile(tmp_path)
    with pytest.raises(GGUFError, match="no such file"):
        GGUFFile(tmp_path / "absent.gguf")
    with pytest.raises(GGUFError, match="cannot be opened"):
        GGUFFile(tmp_path / "a\0b.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_does_not_hang_the_reader(tmp_path: Path) -> None:
    """Opening one would wait for a writer for ever."""
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(GGUFError, match="no regular file"):
        GGUFFile(tmp_path / "pipe.gguf")
