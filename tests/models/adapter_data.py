"""Tiny random adapters of tiny random models, and the models that have them merged into their weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from ggpy.formats import dequantize
from ggpy.gguf import GGUFFile
from tests.models.arch_data import ArchModel

Float32 = NDArray[np.float32]
Factors = dict[str, tuple[Float32, Float32]]        # a (rank, n_in) and b (n_out, rank) by the name of a matrix
RANK = 2


def random_factors(model: ArchModel, names: tuple[str, ...], seed: int = 0) -> Factors:
    """For each matrix in `names` two factors of rank 2, of such size that logits change by about their own size."""
    rng = np.random.default_rng(seed)
    tensors = GGUFFile(model.path).tensors
    factors = {}
    for name in names:
        n_out, n_in = tensors[name].shape
        a, b = rng.normal(0, 1, (RANK, n_in)), rng.normal(0, 0.1, (n_out, RANK))
        factors[name] = a.astype(np.float32), b.astype(np.float32)
    return factors


def write_adapter(path: Path, factors: Mapping[str, tuple[Float32, Float32]], *, alpha: float = 6.0,
                  arch: str = "llama", **metadata: Any) -> Path:
    """A file as convert_lora_to_gguf.py writes it; for the token embedding the caller has A and B change places."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", metadata.pop("general_type", "adapter"))
    writer.add_string("adapter.type", metadata.pop("adapter_type", "lora"))
    writer.add_float32("adapter.lora.alpha", alpha)
    for key, value in metadata.items():
        writer.add_string(f"adapter.lora.{key}", value)
    for name, (a, b) in factors.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    return finished(writer, path)


def write_merged(path: Path, model: ArchModel, added: Mapping[str, Float32]) -> Path:
    """The file of `model`, in float32, with `added` matrices added to those of these names."""
    source = gguf.GGUFReader(model.path)
    writer = gguf.GGUFWriter(path, GGUFFile(model.path).metadata.get_str("general.architecture"))
    for field in source.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        sub_type = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for name, tensor in GGUFFile(model.path).tensors.items():
        values = dequantize(tensor.rows(), tensor.type).reshape(tensor.shape)
        writer.add_tensor(name, (values + added[name]).astype(np.float32) if name in added else values)
    return finished(writer, path)


def finished(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def product(factors: Factors, scale: float) -> dict[str, Float32]:
    """What is added to each matrix."""
    return {name: np.float32(scale) * (b @ a) for name, (a, b) in factors.items()}
