"""Weights as the kernels want them: packed from the file's rows into one huge-page arena, or read where they lie."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggpy.backends.cpu.memory import Arena, aligned
from ggpy.formats import dequantize
from ggpy.gguf import GGUFFile, TensorInfo
from ggpy.kernels.cpu.arguments import PACK, argument_block
from ggpy.kernels.cpu.packing import EXPANDED, PACKINGS, Packing, packing_of
from ggpy.kernels.cpu.team import TAPE_WORDS, Team

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class PlacedWeight:
    """Where one matrix (or one per expert) lies, and which format's kernels read it.

    `mapped` weights are the file's own rows, `row_bytes` apart; others are packed groups of `packing`.
    """

    tensor: TensorInfo
    packing: Packing
    address: int
    mapped: bool

    @property
    def n_out(self) -> int:
        return self.tensor.shape[-2]

    @property
    def n_in(self) -> int:
        return self.tensor.shape[-1]

    @property
    def expert_bytes(self) -> int:
        """Distance between the matrices of two experts."""
        return self.packing.size_bytes(self.n_out, self.n_in)

    @property
    def row_bytes(self) -> int:
        return self.tensor.row_bytes


class WeightStore:
    """The matrices of a model.

    The constructor only decides where everything goes, so that a tape can be encoded; `load` fills the memory.
    """

    def __init__(self, gguf: GGUFFile, matrices: Iterable[TensorInfo], *, float32: bool, mapped: bool) -> None:
        self._gguf = gguf
        self._vectors: dict[str | tuple[float, ...], npt.NDArray[np.float32]] = {}
        unique = {tensor.name: tensor for tensor in matrices}
        in_file = {name: mapped and stays_in_file(tensor, float32=float32) for name, tensor in unique.items()}
        packed = [tensor for name, tensor in unique.items() if not in_file[name]]
        self.arena = Arena(packed_bytes(packed, float32=float32), "packed weights")
        self._weights: dict[str, PlacedWeight] = {}
        free = self.arena.address
        for name, tensor in unique.items():
            packing = packing_of(tensor.type, float32=float32)
            address = int(tensor.data.ctypes.data) if in_file[name] else free
            self._weights[name] = PlacedWeight(tensor, packing, address, in_file[name])
            if not in_file[name]:
                free += packed_bytes([tensor], float32=float32)
        _log_mapped([weight for weight in self._weights.values() if weight.mapped])

    def matrix(self, tensor: TensorInfo) -> PlacedWeight:
        return self._weights[tensor.name]

    def vector(self, tensor: TensorInfo | None) -> int:
        """Address of a small tensor (norm weight, bias) as float32, 0 for None."""
        if tensor is None:
            return 0
        if tensor.name not in self._vectors:
            self._vectors[tensor.name] = np.ascontiguousarray(dequantize(tensor.data, tensor.type))
        return int(self._vectors[tensor.name].ctypes.data)

    def numbers(self, values: tuple[float, ...]) -> int:
        """Address of a few constants as float32, 0 for none."""
        if not values:
            return 0
        return int(self._vectors.setdefault(values, np.array(values, np.float32)).ctypes.data)

    def pack_kernels(self) -> set[str]:
        """Names of the kernels that `load` needs."""
        return {f"{weight.packing.module}.pack" for weight in self._weights.values()
                if not weight.mapped and weight.packing is not EXPANDED}

    def load(self, team: Team, addresses: dict[str, int]) -> None:
        """Packs every matrix, the threads sharing each, and lets go of the file's pages behind it."""
        for weight in self._weights.values():
            if weight.mapped:
                continue
            if weight.packing is EXPANDED:
                self._expand(weight)
            elif weight.packing is PACKINGS.get(weight.tensor.type):
                self._pack(weight, weight.tensor.data, weight.row_bytes, team, addresses)
            else:
                floats = dequantize(weight.tensor.data, weight.tensor.type)
                self._pack(weight, floats, weight.n_in * 4, team, addresses)
            self._gguf.advise_dontneed(weight.tensor)

    def _pack(self, weight: PlacedWeight, source: npt.NDArray[np.uint8] | npt.NDArray[np.float32], row_bytes: int,
              team: Team, addresses: dict[str, int]) -> None:
        blocks = [argument_block(PACK, source=int(source.ctypes.data) + i * weight.n_out * row_bytes,
                                 packed=weight.address + i * weight.expert_bytes, n_out=weight.n_out,
                                 n_in=weight.n_in, row_bytes=row_bytes,
                                 group_bytes=weight.packing.group_bytes(weight.n_in))
                  for i in range(_n_matrices(weight.tensor))]
        tape = np.zeros((len(blocks), TAPE_WORDS), np.int64)
        tape[:, 0] = addresses[f"{weight.packing.module}.pack"]
        tape[:, 1] = [block.ctypes.data for block in blocks]
        team.run(tape, 0)

    def _expand(self, weight: PlacedWeight) -> None:
        from ggpy.kernels.cpu.expand import expand  # rare formats only

        rows = weight.tensor.rows().reshape(_n_matrices(weight.tensor), weight.n_out, -1)
        for i, matrix in enumerate(rows):
            packed = expand(matrix, weight.tensor.type)
            start = weight.address - self.arena.address + i * weight.expert_bytes
            self.arena.bytes[start: start + packed.size] = packed.reshape(-1)


def stays_in_file(tensor: TensorInfo, *, float32: bool) -> bool:
    """Whether kernels can read this matrix where the file has it, when weights are to be mapped."""
    packing = packing_of(tensor.type, float32=float32)
    return packing is PACKINGS.get(tensor.type) and packing.int8 and len(tensor.shape) == 2


def layout_kernels(gguf: GGUFFile) -> list[str]:
    """Names of the kernels that multiply a model's weights in the file, that pack them, and that multiply packed ones:
    which of these `repack="auto"` needs follows from the memory that is free at the time."""
    only_looked_up = {"token_embd.weight"} if "output.weight" in gguf.tensors else set()
    modules = {packing_of(tensor.type).module for name, tensor in gguf.tensors.items()
               if len(tensor.shape) == 2 and stays_in_file(tensor, float32=False) and name not in only_looked_up}
    return sorted(f"{module}.{name}" for module in modules for name in ("linear", "mapped_linear", "pack"))


def _log_mapped(weights: list[PlacedWeight]) -> None:
    if weights:
        anew = sorted({weight.tensor.type.name for weight in weights if not weight.packing.direct})
        logger.info("cpu: %d matrices are read from the file; packed anew in every step: %s", len(weights),
                    ", ".join(anew) or "none")


def packed_bytes(matrices: Iterable[TensorInfo], *, float32: bool) -> int:
    """Memory that packed copies of these matrices take."""
    unique = {tensor.name: tensor for tensor in matrices}.values()
    return sum(aligned(packing_of(tensor.type, float32=float32).size_bytes(*tensor.shape[-2:]) * _n_matrices(tensor))
               for tensor in unique)


def _n_matrices(tensor: TensorInfo) -> int:
    return int(np.prod(tensor.shape[:-2], dtype=np.int64))
