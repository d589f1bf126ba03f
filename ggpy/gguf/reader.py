"""Opening a GGUF file, or all parts of a split one, as read-only memory maps.

A file is hostile input: every number in it is checked before it is used, at least as strictly as llama.cpp's
gguf.cpp does, and `GGUFError` is the only error.
"""

import hashlib
import math
import mmap
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ggpy.errors import GGUFError
from ggpy.gguf.cursor import Cursor
from ggpy.gguf.metadata import MAX_KEYS, MIN_PAIR_BYTES, Metadata, scan_metadata
from ggpy.gguf.types import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_DIMS,
    MAX_NAME_BYTES,
    VERSIONS,
    TensorInfo,
    TensorType,
    ValueType,
    shown,
)

HEADER_BYTES = 24                           # magic, version, tensor count, key count
MAX_TENSORS = 1 << 17
MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8    # name, number of dims, one dim, type, offset
SAMPLE_BYTES = 4096                         # of a tensor, at its start, middle and end: part of the fingerprint
SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GGUFFile:
    """A GGUF file opened by memory map. Given any part of a split model, all parts are opened as one.

    The map lives as long as a view of it does; there is nothing to close. Raises GGUFError for anything that is
    not a sound GGUF file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._parts = _open_parts(Path(path))
        first = self._parts[0]
        self.path: Path = first.path                            # of the first part
        self.paths = tuple(part.path for part in self._parts)
        self.version: int = first.version
        self.alignment: int = first.alignment
        self.metadata: Metadata = first.metadata                # of the first part; the others repeat split.* only
        self.size_bytes: int = sum(part.file.size for part in self._parts)
        self.tensors: dict[str, TensorInfo] = {}
        for part in self._parts:
            for name, tensor in part.tensors.items():
                if name in self.tensors:
                    other = self.paths[self.tensors[name].part]
                    raise GGUFError(f"{part.path}: tensor {shown(name)} is also in {other}, expected each tensor once")
                self.tensors[name] = tensor
        self._check_tensor_count()

    def _check_tensor_count(self) -> None:
        expected = self.metadata.get_int("split.tensors.count", None) if len(self._parts) > 1 else None
        if expected is not None and expected != len(self.tensors):
            raise GGUFError(f"{self.path}: the {len(self._parts)} parts hold {len(self.tensors):,} tensors, "
                            f"expected split.tensors.count = {expected:,}; do all parts belong to one model?")

    def prefetch(self, tensor: TensorInfo) -> None:
        """Ask the system to start reading the tensor's pages; does nothing where it can't be asked."""
        self._advise(tensor, "MADV_WILLNEED", whole_pages=False)

    def advise_dontneed(self, tensor: TensorInfo) -> None:
        """Give the tensor's resident pages back to the system, for one who has made a copy.

        Only pages that hold nothing else go. The tensor stays readable: its pages come back from the file.
        """
        self._advise(tensor, "MADV_DONTNEED", whole_pages=True)

    def _advise(self, tensor: TensorInfo, advice: str, whole_pages: bool) -> None:
        number = getattr(mmap, advice, None)        # absent on Windows
        if number is None:
            return
        start, end, page = tensor.offset, tensor.offset + tensor.size_bytes, mmap.PAGESIZE
        start = -(-start // page) * page if whole_pages else start // page * page
        end = end // page * page if whole_pages else end
        if end > start:
            self._parts[tensor.part].map.madvise(number, start, end - start)

    @cached_property
    def fingerprint(self) -> str:
        """Tells models apart without reading all of them: a hash of the headers, and of samples of every tensor."""
        digest = hashlib.sha256()
        for part in self._parts:
            header_bytes = min((tensor.offset for tensor in part.tensors.values()), default=len(part.file))
            digest.update(part.file[:header_bytes].tobytes())
            for tensor in part.tensors.values():
                data = tensor.data
                for sample in (data[:SAMPLE_BYTES], data[len(data) // 2:][:SAMPLE_BYTES], data[-SAMPLE_BYTES:]):
                    digest.update(sample.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self.tensors)} tensors, {self.size_bytes:,} bytes)"


@dataclass(frozen=True, slots=True)
class _Part:
    """One file, read and checked."""

    path: Path
    map: mmap.mmap
    file: npt.NDArray[np.uint8]
    version: int
    metadata: Metadata
    alignment: int
    tensors: dict[str, TensorInfo]


def _open_parts(path: Path) -> list[_Part]:
    """The file at `path`, or every part of the split model that it belongs to, in order."""
    name = SPLIT_NAME.fullmatch(path.name)
    part = _read_part(path)
    count = part.metadata.get_int("split.count", 1)
    if count <= 1:
        return [part]
    if name is None or int(name["count"]) != count:
        raise GGUFError(f"{path}: this is part {part.metadata.get_int('split.no', 0) + 1} of {count}, expected a name "
                        f"that ends in -00001-of-{count:05d}.gguf; the parts are found by their names")

    parts = []
    for i in range(count):
        sibling = path.with_name(f"{name['stem']}-{i + 1:05d}-of-{count:05d}.gguf")
        current = part if sibling == path else _read_part(sibling)
        for key, expected in (("split.no", i), ("split.count", count)):
            found = current.metadata.get_int(key)
            if found != expected:
                raise GGUFError(f"{sibling}: found {key} = {found}, expected {expected}; was the file renamed?")
        parts.append(current)
    return parts


def _map_file(path: Path) -> mmap.mmap:
    """Map a regular file of at least a header's size."""
    try:
        info = os.stat(path)        # before opening: to open a FIFO would block
        if not stat.S_ISREG(info.st_mode):
            kind = "a folder" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise GGUFError(f"{path}: found {kind}, expected a GGUF file")
        if info.st_size < HEADER_BYTES:
            raise GGUFError(f"{path}: found {info.st_size} bytes, expected a GGUF header of {HEADER_BYTES}; "
                            "is the download complete?")
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise GGUFError(f"{path}: no such file, expected a GGUF file") from None
    except (OSError, ValueError) as e:      # ValueError: emptied since stat, or a NUL in the path
        raise GGUFError(f"{path}: cannot be opened: {e}") from e


def _read_part(path: Path) -> _Part:
    """Map one file and check its whole header."""
    map_ = _map_file(path)
    buffer = memoryview(map_)
    file = np.frombuffer(map_, np.uint8)
    cursor = Cursor(path, buffer)
    version = _read_version(cursor)
    n_tensors = cursor.count("tensor count", MIN_TENSOR_BYTES, MAX_TENSORS)
    n_keys = cursor.count("key count", MIN_PAIR_BYTES, MAX_KEYS)
    metadata = scan_metadata(cursor, n_keys)
    alignment = _read_alignment(cursor, metadata)
    index = metadata.get_int("split.no", 0) if metadata.get_int("split.count", 1) > 1 else 0
    tensors = _read_tensors(cursor, n_tensors, alignment, file, index)
    return _Part(path, map_, file, version, metadata, alignment, tensors)


def _read_version(cursor: Cursor) -> int:
    """Check the magic and return the version."""
    magic = bytes(cursor.buffer[cursor.skip(4, "magic") : cursor.pos])
    if magic != MAGIC:
        hint = "; this is a Git LFS pointer, fetch the file it stands for" if magic == b"vers" else ""
        found = repr(magic).removeprefix("b")
        raise GGUFError(f"{cursor.path}: this is not a GGUF file (it begins with {found}, expected {MAGIC.decode()!r} "
                        f"at byte 0){hint}")
    version = cursor.u32("version")
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS and 1 <= swapped <= 0xFF:
        raise cursor.error("version", 4, f"{version:#x}, version {swapped} in big-endian order",
                           "a little-endian file; convert the model for little-endian machines")
    if version not in VERSIONS:
        advice = "convert the model again with a newer converter" if version < VERSIONS[0] else "update ggpy"
        raise cursor.error("version", 4, version, f"version 2 or 3; {advice}")
    return version


def _read_alignment(cursor: Cursor, metadata: Metadata) -> int:
    """The alignment of tensor data: a power of two from 8."""
    key = ALIGNMENT_KEY
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    alignment = metadata.get_int(key)
    if metadata.value_type(key) is not ValueType.UINT32:
        raise GGUFError(f"{cursor.path}: key {key!r}: found type {metadata.value_type(key).name}, expected UINT32")
    if not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise GGUFError(f"{cursor.path}: key {key!r}: found {alignment:,}, "
                        f"expected a power of two from 8 to {MAX_ALIGNMENT:,}")
    return alignment


def _read_tensors(
    cursor: Cursor, count: int, alignment: int, file: npt.NDArray[np.uint8], part: int
) -> dict[str, TensorInfo]:
    """Read `count` tensor descriptions and place them in the data section behind them."""
    described: dict[str, tuple[TensorType, tuple[int, ...], int, int]] = {}
    for i in range(count):
        start = cursor.pos
        name = cursor.name(f"name of tensor {i}", MAX_NAME_BYTES)
        if name in described:
            raise cursor.error(f"name of tensor {i}", start, f"{shown(name)} again", "each tensor once")
        described[name] = _read_description(cursor, f"tensor {shown(name)}")

    data_start = -(-cursor.pos // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    expected = 0        # tensors follow one another without gaps, as llama.cpp demands: so none overlap
    for name, (type_, shape, offset, field_pos) in described.items():
        if offset != expected:
            raise cursor.error(f"offset of tensor {shown(name)}", field_pos, f"{offset:,}",
                               f"{expected:,}, where the tensor before it ends (alignment {alignment})")
        tensor = TensorInfo(name, type_, shape, data_start + offset, part, file)
        end = tensor.offset + tensor.size_bytes
        if end > cursor.size:
            raise GGUFError(f"{cursor.path}: tensor {shown(name)} ends at byte {end:,} but the file has "
                            f"{cursor.size:,}; is the download complete?")
        expected += -(-tensor.size_bytes // alignment) * alignment
        tensors[name] = tensor
    return tensors


def _read_description(cursor: Cursor, what: str) -> tuple[TensorType, tuple[int, ...], int, int]:
    """Type, shape in NumPy order, offset in the data section, and the byte where that offset stands."""
    start = cursor.pos
    n_dims = cursor.u32(f"number of dimensions of {what}")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"number of dimensions of {what}", start, f"{n_dims:,}", f"1 to {MAX_DIMS}")
    dims = [cursor.u64(f"dimension {j} of {what}") for j in range(n_dims)]
    if min(dims) == 0 or math.prod(dims) >= 1 << 63:
        raise cursor.error(f"dimensions of {what}", start + 4, dims, "none of 0 and fewer than 2**63 weights in all")

    type_pos = cursor.pos
    number = cursor.u32(f"type of {what}")
    try:
        type_ = TensorType(number)
    except ValueError:
        raise cursor.error(f"type of {what}", type_pos, number,
                           f"a type that ggpy knows (0 to {max(TensorType):d}, without those removed)") from None
    if dims[0] % type_.block_size:
        raise cursor.error(f"first dimension of {what}", start + 4, f"{dims[0]:,}",
                           f"a multiple of {type_.block_size}, the block of {type_.name}")
    offset_pos = cursor.pos
    return type_, tuple(reversed(dims)), cursor.u64(f"offset of {what}"), offset_pos
