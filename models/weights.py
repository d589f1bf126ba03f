"""Weights by GGUF tensor name, with the shape that the model expects."""

from dataclasses import replace

from ggpy.errors import GGUFError, UnsupportedModelError
from ggpy.formats import FORMATS
from ggpy.gguf import GGUFFile, TensorInfo


class Weights:
    """The tensors of a model, or of one layer: names get `prefix` ("blk.3.") in front.

    A missing tensor or one of another shape raises GGUFError with its name and the expected shape, a tensor type that
    nothing can decode UnsupportedModelError.
    """

    def __init__(self, gguf: GGUFFile, prefix: str = "") -> None:
        self.gguf, self.prefix = gguf, prefix

    def layer(self, index: int) -> "Weights":
        return Weights(self.gguf, f"blk.{index}.")

    def has(self, name: str) -> bool:
        return self.prefix + name in self.gguf.tensors

    def get(self, name: str, *shape: int) -> TensorInfo:
        """Tensor `name` of `shape`, outermost first. Leading dimensions of 1 may be absent from the file."""
        full_name = self.prefix + name
        tensor = self.gguf.tensors.get(full_name)
        if tensor is None:
            raise GGUFError(f"{self.gguf.path}: tensor {full_name!r} is missing, expected one of shape {shape}")
        if _core(tensor.shape) != _core(shape):
            raise GGUFError(f"{self.gguf.path}: tensor {full_name!r}: found shape {tensor.shape}, expected {shape}")
        if tensor.type not in FORMATS:
            raise UnsupportedModelError(f"{self.gguf.path}: tensor {full_name!r} has type {tensor.type.name}, expected "
                                        f"one of {' '.join(sorted(t.name for t in FORMATS))}")
        return tensor if tensor.shape == shape else replace(tensor, shape=shape)

    def find(self, name: str, *shape: int) -> TensorInfo | None:
        """As `get`, but None if there is no such tensor."""
        return self.get(name, *shape) if self.has(name) else None


def _core(shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` without its leading ones."""
    lead = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[lead:]


def whole_of(tensor: TensorInfo) -> tuple[str, int]:
    """The name of the file's tensor that `tensor` is, or is a piece of by `split_rows`, and the row it begins at."""
    name, bracket, rows = tensor.name.partition("[")
    return (name, int(rows.partition(":")[0])) if bracket else (name, 0)


def split_rows(tensor: TensorInfo, *sizes: int) -> list[TensorInfo]:
    """Consecutive pieces of a fused weight (sum(sizes), n_in) or bias (sum(sizes),): views, no copies.

    Rows of a matrix lie one after another in a file, so the q, k and v parts of `attn_qkv` are tensors themselves.
    """
    pieces, start = [], 0
    assert sum(sizes) == tensor.shape[0]
    bytes_each = tensor.size_bytes // tensor.shape[0]
    for size in sizes:
        pieces.append(replace(tensor, name=f"{tensor.name}[{start}:{start + size}]", shape=(size, *tensor.shape[1:]),
                              offset=tensor.offset + start * bytes_each))
        start += size
    return pieces
