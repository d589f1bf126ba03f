"""Files pass between ggpy and the `gguf` package in both directions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from ggpy.gguf import GGUFFile, GGUFWriter, TensorType, ValueType


def theirs_of(path: Path) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """Keys and tensors as the `gguf` package reads them."""
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {
        t.name: (int(t.tensor_type), tuple(int(n) for n in reversed(t.shape)), t.data_offset, t.data.tobytes())
        for t in reader.tensors}
    return keys, tensors


def ours_of(path: Path) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """The same, as ggpy reads them."""
    file = GGUFFile(path)
    keys = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in file.metadata.items()}
    tensors = {t.name: (int(t.type), t.shape, t.offset, t.data.tobytes()) for t in file.tensors.values()}
    return keys, tensors


def test_a_file_of_the_gguf_package_reads_the_same(tmp_path: Path) -> None:
    """Every scalar type, arrays, and plain and quantised tensors."""
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in [("uint8", 200), ("int8", -3), ("uint16", 60000), ("int16", -300), ("uint32", 2**32 - 1),
                        ("int32", -5), ("uint64", 2**64 - 1), ("int64", -(2**40)), ("float32", 0.5),
                        ("float64", 0.1), ("bool", True), ("string", "grüße")]:
        getattr(writer, f"add_{name}")(f"a.{name}", value)
    writer.add_array("tokens", ["a", "b", "ĉ"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_array("ids", [1, 2, 3])
    writer.add_array("flags", [True, False])
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((6, 64)).astype(np.float32)
    writer.add_tensor("f32", weights)
    writer.add_tensor("f16", weights.astype(np.float16).reshape(2, 3, 64))
    q8_0 = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q8_0", q8_0, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    assert ours_of(path) == theirs_of(path)
    assert GGUFFile(path).tensors["q8_0"].rows().tobytes() == q8_0.tobytes()


def test_a_file_of_ours_reads_the_same_in_the_gguf_package(tmp_path: Path) -> None:
    """Every value type and every tensor type, at an alignment of its own."""
    path = tmp_path / "ours.gguf"
    writer = GGUFWriter(path, alignment=64)
    writer.add("general.architecture", "llama")
    for value_type in ValueType:
        if value_type not in (ValueType.STRING, ValueType.ARRAY):
            writer.add(f"a.{value_type.name}", value_type is ValueType.BOOL or 1, value_type)
    writer.add("words", ["a", "", "ĉ"])
    writer.add("numbers", np.arange(3, dtype=np.uint64))
    rng = np.random.default_rng(0)
    for type_ in TensorType:
        writer.add_tensor(type_.name, rng.integers(0, 256, (3, 2 * type_.block_bytes), np.uint8), type_)
    writer.write()
    keys, tensors = theirs_of(path)
    assert (keys, tensors) == ours_of(path)
    assert len(tensors) == len(TensorType)


def test_a_split_model_of_the_gguf_package_opens_whole(tmp_path: Path) -> None:
    """Parts of two tensors each, found from the middle one."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for i in range(5):
        writer.add_tensor(f"t{i}", np.full(3, i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "m-00002-of-00003.gguf")
    assert [t.part for t in file.tensors.values()] == [0, 0, 1, 1, 2]
    assert [int(t.data.view("<f4")[0]) for t in file.tensors.values()] == [0, 1, 2, 3, 4]
    assert file.metadata["general.architecture"] == "llama"


def test_a_real_model_reads_the_same(model_path: Callable[[str], Path]) -> None:
    """All keys of the default model, its 98,052 strings included, and where every tensor lies."""
    path = model_path("smollm2:135m")
    file, theirs = GGUFFile(path), gguf.GGUFReader(path)
    for key, value in file.metadata.items():
        assert (value.tolist() if hasattr(value, "tolist") else value) == theirs.fields[key].contents(), key
    assert [(t.name, int(t.type), t.size_bytes, t.offset) for t in file.tensors.values()] == [
        (t.name, int(t.tensor_type), t.n_bytes, t.data_offset) for t in theirs.tensors]
