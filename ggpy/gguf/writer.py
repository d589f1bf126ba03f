"""Writing GGUF files; tensors may be streamed, so that none needs to be held in memory."""

import math
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ggpy.errors import GGUFError
from ggpy.gguf.metadata import MAX_ARRAY_DEPTH, StringArray
from ggpy.gguf.types import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_ALIGNMENT,
    MAX_DIMS,
    MAX_KEY_BYTES,
    MAX_NAME_BYTES,
    VALUE_DTYPES,
    VERSIONS,
    TensorType,
    ValueType,
    shown,
)

Chunk = bytes | bytearray | memoryview | npt.NDArray[Any]
TensorData = npt.NDArray[Any] | Iterable[Chunk] | Callable[[], Iterable[Chunk]]

TENSOR_TYPE_OF_DTYPE = {
    np.dtype("<f4"): TensorType.F32,
    np.dtype("<f2"): TensorType.F16,
    np.dtype("<f8"): TensorType.F64,
    np.dtype("i1"): TensorType.I8,
    np.dtype("<i2"): TensorType.I16,
    np.dtype("<i4"): TensorType.I32,
    np.dtype("<i8"): TensorType.I64,
}
VALUE_TYPE_OF_DTYPE = {dtype: value_type for value_type, dtype in VALUE_DTYPES.items()}


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: bytes
    type: TensorType
    shape: tuple[int, ...]      # NumPy order
    data: TensorData

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) // self.type.block_size * self.type.block_bytes


class GGUFWriter:
    """Collects metadata and tensors, then writes the file at once.

    Everything is checked when it is added; GGUFError says what a reader would refuse.
    """

    def __init__(self, path: str | os.PathLike[str], *, version: int = 3, alignment: int = DEFAULT_ALIGNMENT) -> None:
        if version not in VERSIONS:
            raise GGUFError(f"{path}: cannot write version {version}, expected one of {VERSIONS}")
        self.path = Path(path)
        self.version = version
        self.alignment = DEFAULT_ALIGNMENT
        self._values: dict[str, bytes] = {}         # type and value, encoded
        self._tensors: dict[str, _Tensor] = {}
        if alignment != DEFAULT_ALIGNMENT:
            self.add(ALIGNMENT_KEY, alignment)

    def add(self, key: str, value: Any, value_type: ValueType | None = None) -> None:
        """Add a key with its value: a bool, int, float, str, bytes (a raw string), or an array of one kind.

        `value_type` is the type of a scalar or of an array's elements, as `Metadata.value_type` gives it. Without
        it an array keeps its dtype, an int becomes UINT32 or the smallest of INT32, INT64, UINT64 that holds it
        (in a list INT32 before the larger), a float FLOAT32. `general.alignment` also sets the writer's.
        Raises GGUFError for a key that was added before and for a value that its type does not hold.
        """
        where = f"{self.path}: key {shown(key)}"
        self._check_name(key, MAX_KEY_BYTES, "key")
        if key == ALIGNMENT_KEY:
            self._set_alignment(value)
            value_type = ValueType.UINT32
        elif key in self._values:
            raise GGUFError(f"{where} was added before; expected each key once")
        self._values[key] = _encode(value, value_type, where)

    def add_tensor(
        self, name: str, data: TensorData, type: TensorType | None = None, shape: Sequence[int] | None = None
    ) -> None:
        """Add a tensor, from one of two kinds of data.

        An array of floats or integers is stored as it is; an array of uint8 is rows of blocks of `type`
        (..., row_bytes). Or an iterable of bytes, or a function that returns one, is run while the file is
        written: then `type` and `shape` (NumPy order, in weights) say what it gives.
        """
        where = f"{self.path}: tensor {shown(name)}"
        self._check_name(name, MAX_NAME_BYTES, "tensor")
        if name in self._tensors:
            raise GGUFError(f"{where} was added before; expected each name once")
        if isinstance(data, np.ndarray):
            data, type, natural = _array_type(data, type, where)
            shape = natural if shape is None else shape
            if math.prod(shape) != math.prod(natural):
                raise GGUFError(f"{where}: found shape {tuple(shape)} for data of {math.prod(natural):,} weights")
        if type is None or shape is None:
            raise GGUFError(f"{where}: streamed data says neither, expected a type and a shape")
        tensor = _Tensor(name.encode(), TensorType(type), tuple(int(n) for n in shape), data)
        if not 1 <= len(tensor.shape) <= MAX_DIMS or min(tensor.shape) < 1:
            raise GGUFError(f"{where}: found shape {tensor.shape}, expected 1 to {MAX_DIMS} dimensions, none of 0")
        if tensor.shape[-1] % tensor.type.block_size:
            raise GGUFError(f"{where}: found rows of {tensor.shape[-1]:,} weights, expected a multiple of "
                            f"{tensor.type.block_size}, the block of {tensor.type.name}")
        self._tensors[name] = tensor

    def write(self) -> None:
        """Write the file beside its final name and move it there, so that no half-written file is ever seen.

        Raises GGUFError when streamed data has another size than its shape says, and OSError as the system does.
        """
        temporary = self.path.with_name(f".{self.path.name[:200]}.{secrets.token_hex(4)}.tmp")
        try:
            with open(temporary, "xb") as file:
                file.write(self._header())
                for tensor in self._tensors.values():
                    self._write_tensor(file, tensor)
                file.flush()
                os.fsync(file.fileno())     # else a crash may leave the new name with no content
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def _header(self) -> bytes:
        parts = [struct.pack("<4sIQQ", MAGIC, self.version, len(self._tensors), len(self._values))]
        parts += [_string(key.encode()) + value for key, value in self._values.items()]
        offset = 0
        for t in self._tensors.values():
            dims = t.shape[::-1]
            parts.append(_string(t.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, t.type, offset))
            offset += self._padded(t.size_bytes)
        header = b"".join(parts)
        return header.ljust(self._padded(len(header)), b"\0") if self._tensors else header

    def _write_tensor(self, file: IO[bytes], tensor: _Tensor) -> None:
        data, left = tensor.data, tensor.size_bytes
        where = f"{self.path}: tensor {shown(tensor.name.decode())}"
        chunks = [data] if isinstance(data, np.ndarray) else data() if callable(data) else data
        for chunk in chunks:
            if isinstance(chunk, np.ndarray):
                chunk = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data
            left -= memoryview(chunk).nbytes
            if left < 0:
                raise GGUFError(f"{where}: found more data than its {tensor.size_bytes:,} bytes")
            file.write(chunk)
        if left:
            raise GGUFError(f"{where}: found {tensor.size_bytes - left:,} bytes, expected {tensor.size_bytes:,}")
        file.write(bytes(self._padded(tensor.size_bytes) - tensor.size_bytes))

    def _padded(self, n: int) -> int:
        return -(-n // self.alignment) * self.alignment

    def _set_alignment(self, alignment: Any) -> None:
        if not isinstance(alignment, int) or not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise GGUFError(f"{self.path}: found alignment {alignment!r}, "
                            f"expected a power of two from 8 to {MAX_ALIGNMENT:,}")
        self.alignment = alignment

    def _check_name(self, name: str, max_bytes: int, what: str) -> None:
        try:
            n_bytes = len(name.encode())
        except UnicodeEncodeError:
            raise GGUFError(f"{self.path}: {what} {shown(name)} has lone surrogates, expected UTF-8") from None
        if not 1 <= n_bytes <= max_bytes or "\0" in name:
            raise GGUFError(f"{self.path}: {what} {shown(name)} has {n_bytes:,} bytes, "
                            f"expected 1 to {max_bytes:,} and no NUL")


def _array_type(
    data: npt.NDArray[Any], type_: TensorType | None, where: str
) -> tuple[npt.NDArray[Any], TensorType, tuple[int, ...]]:
    """The data in the file's byte order, its tensor type, and its shape in weights."""
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    natural = TENSOR_TYPE_OF_DTYPE.get(data.dtype)
    if natural is not None:
        if type_ not in (None, natural):
            raise GGUFError(f"{where}: found {data.dtype} data for type {TensorType(type_).name}; "
                            "expected its blocks as uint8")
        return data, natural, data.shape
    if data.dtype != np.uint8 or type_ is None:
        raise GGUFError(f"{where}: found {data.dtype} data, expected floats, signed integers, or uint8 with a type")
    row_bytes = data.shape[-1] if data.ndim else 0
    n_blocks, rest = divmod(row_bytes, type_.block_bytes)
    if rest:
        raise GGUFError(f"{where}: found rows of {row_bytes:,} bytes, expected a multiple of {type_.block_bytes}, "
                        f"the block of {type_.name}")
    return data, type_, (*data.shape[:-1], n_blocks * type_.block_size)


def _string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _encode(value: Any, value_type: ValueType | None, where: str) -> bytes:
    """A value as it stands in the file behind its key: type, then value."""
    if isinstance(value, StringArray | list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return struct.pack("<I", ValueType.ARRAY) + _encode_array(value, value_type, where)
    value_type = _infer([value], where, in_list=False) if value_type is None else ValueType(value_type)
    if value_type is ValueType.STRING:
        return struct.pack("<I", value_type) + _encode_string(value, where)
    return struct.pack("<I", value_type) + _encode_numbers([value], value_type, where)


def _encode_array(values: Any, element: ValueType | None, where: str, depth: int = 1) -> bytes:
    """Element type, count, elements."""
    if depth > MAX_ARRAY_DEPTH:
        raise GGUFError(f"{where}: found arrays nested more than {MAX_ARRAY_DEPTH} deep")
    if not isinstance(values, StringArray | list | tuple | np.ndarray):
        raise GGUFError(f"{where}: found {values!r:.60}, expected an array")
    element = _infer(values, where, in_list=True) if element is None else ValueType(element)
    if element is ValueType.ARRAY:
        body = b"".join(_encode_array(v, None, where, depth + 1) for v in values)
    elif element is ValueType.STRING:
        strings = map(values.bytes, range(len(values))) if isinstance(values, StringArray) else values
        body = b"".join(_encode_string(s, where) for s in strings)
    else:
        body = _encode_numbers(values, element, where)
    return struct.pack("<IQ", element, len(values)) + body


def _encode_string(value: Any, where: str) -> bytes:
    if isinstance(value, str):
        try:
            value = value.encode("utf-8", "surrogateescape")    # as the reader decodes it
        except UnicodeEncodeError:
            raise GGUFError(f"{where}: found {shown(value)} with lone surrogates, expected a string") from None
    if not isinstance(value, bytes):
        raise GGUFError(f"{where}: found {type(value).__name__} {value!r:.60}, expected a string")
    return _string(value)


def _encode_numbers(values: Any, value_type: ValueType, where: str) -> bytes:
    """Numbers or bools as `value_type`; raises GGUFError for one that it does not hold."""
    dtype = VALUE_DTYPES.get(value_type)
    if dtype is None or isinstance(values, StringArray):
        raise GGUFError(f"{where}: found {values!r:.60}, expected {value_type.name}")
    try:
        source = np.asarray(values)
    except ValueError:      # lists of different lengths
        raise GGUFError(f"{where}: found {values!r:.60}, expected {value_type.name}") from None
    if source.ndim != 1:
        raise GGUFError(f"{where}: found shape {source.shape}, expected one dimension of {value_type.name}")
    if source.size == 0:
        return b""
    kinds = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}[dtype.kind]
    with np.errstate(over="ignore", invalid="ignore"):
        target = source.astype(dtype) if source.dtype.kind in kinds else None
    if target is None or (dtype.kind in "iu" and not np.array_equal(source, target)):
        raise GGUFError(f"{where}: found {values!r:.60}, which {value_type.name} does not hold")
    if dtype.kind == "f" and not np.array_equal(np.isfinite(source), np.isfinite(target)):
        raise GGUFError(f"{where}: found {values!r:.60}, too large for {value_type.name}")
    return target.tobytes()


def _infer(values: Any, where: str, in_list: bool) -> ValueType:
    """The type to store `values` as, when none was given."""
    if isinstance(values, StringArray):
        return ValueType.STRING
    if isinstance(values, np.ndarray) or (values and isinstance(values[0], np.generic)):
        dtype = np.asarray(values).dtype.newbyteorder("<")
        if dtype in VALUE_TYPE_OF_DTYPE:
            return VALUE_TYPE_OF_DTYPE[dtype]
        raise GGUFError(f"{where}: found values of {dtype}, for which GGUF has no type")
    kinds = {bool if isinstance(v, bool) else type(v) for v in values}
    if kinds and kinds <= {str, bytes}:
        return ValueType.STRING
    if kinds == {bool}:
        return ValueType.BOOL
    if kinds == {int}:
        return _infer_integer(min(values), max(values), in_list)
    if kinds and kinds <= {float, int}:
        return ValueType.FLOAT32
    if kinds and kinds <= {list, tuple, np.ndarray, StringArray}:
        return ValueType.ARRAY
    names = ", ".join(sorted(k.__name__ for k in kinds)) or "an empty list without a value_type"
    raise GGUFError(f"{where}: found {names}, expected bools, numbers, strings or arrays of one kind")


def _infer_integer(low: int, high: int, in_list: bool) -> ValueType:
    order = [ValueType.INT32, ValueType.UINT32] if in_list else [ValueType.UINT32, ValueType.INT32]
    for value_type in (*order, ValueType.INT64):
        limits = np.iinfo(VALUE_DTYPES[value_type])
        if limits.min <= low and high <= limits.max:
            return value_type
    return ValueType.UINT64
