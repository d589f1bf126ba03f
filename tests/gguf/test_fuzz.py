"""Whatever a file holds, it opens or is refused; whatever is written comes back."""

import importlib.util
import tracemalloc
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.gguf import GGUFFile, GGUFWriter, TensorType, ValueType

spec = importlib.util.spec_from_file_location("fuzz_reader", Path(__file__).with_name("fuzz_reader.py"))
assert spec is not None
assert spec.loader is not None
fuzz_reader: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz_reader)

CORPUS = sorted(fuzz_reader.CORPUS.glob("*.gguf"))
MAX_BYTES = 1 << 20     # Python memory that a file of some 4 KB may take while it is opened and decoded

numbers = st.one_of(st.sampled_from(fuzz_reader.NUMBERS), st.integers(0, 2**64 - 1))
positions = st.one_of(st.integers(0, 1500), st.integers(0, 5000))
mutations = st.lists(st.tuples(st.sampled_from(fuzz_reader.KINDS), positions, numbers), min_size=1, max_size=5)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=15)
scalars = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(width=32, allow_nan=False), text)
arrays = st.one_of(
    st.lists(st.booleans(), min_size=1), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1), st.lists(text, min_size=1))
values = st.one_of(scalars, arrays, st.lists(arrays, min_size=1, max_size=3))
shapes = st.lists(st.integers(1, 3), min_size=0, max_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a test; each replaces the files of the one before."""
    return tmp_path_factory.mktemp("fuzz")


def plain(value: Any) -> Any:
    """A decoded value as Python scalars and lists."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.name)
def test_every_file_of_the_corpus_opens(path: Path) -> None:
    """The seeds are sound, so that mutations of them reach deep."""
    assert fuzz_reader.opens(path) == "ok"


def test_the_corpus_is_what_its_script_writes(tmp_path: Path) -> None:
    """`fuzz_reader.py --write-corpus` gives the committed bytes."""
    fuzz_reader.write_corpus(tmp_path)
    written = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert written == {p.name: p.read_bytes() for p in CORPUS}


@settings(max_examples=1000, deadline=timedelta(seconds=20))
@given(st.sampled_from(CORPUS), mutations, st.sampled_from(CORPUS))
def test_a_mutated_file_opens_or_is_refused(
    folder: Path, seed: Path, mutations: list[tuple[str, int, int]], other: Path
) -> None:
    """No other error, no crash, and little memory, whatever bytes were changed."""
    for path in CORPUS:     # all of them, for the siblings of a split file; new ones, as old ones may be mapped
        (folder / path.name).unlink(missing_ok=True)
        data = path.read_bytes()
        mutated = fuzz_reader.mutate(data, mutations, other.read_bytes())
        (folder / path.name).write_bytes(mutated if path == seed else data)
    tracemalloc.start()
    try:
        fuzz_reader.opens(folder / seed.name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES


@settings(max_examples=200, deadline=timedelta(seconds=20))
@given(st.dictionaries(names.map("any.".__add__), values, max_size=8), st.sampled_from([2, 3]),
       st.sampled_from([8, 32, 256]))
def test_metadata_comes_back_as_written(folder: Path, pairs: dict[str, Any], version: int, alignment: int) -> None:
    """Any mix of scalars, arrays and arrays of arrays, and again after a copy by declared type."""
    path = folder / "keys.gguf"
    writer = GGUFWriter(path, version=version, alignment=alignment)
    for key, value in pairs.items():
        writer.add(key, value)
    writer.write()
    first = GGUFFile(path)
    copy = GGUFWriter(path.with_suffix(".copy"), version=version)
    for key in first.metadata:
        copy.add(key, first.metadata[key], first.metadata.value_type(key))
    copy.write()

    found = {key: plain(value) for key, value in first.metadata.items() if key != "general.alignment"}
    assert found == pairs
    assert (first.version, first.alignment) == (version, alignment)
    assert path.read_bytes() == copy.path.read_bytes()


@settings(max_examples=100, deadline=timedelta(seconds=20))
@given(st.dictionaries(names.filter(lambda n: len(n.encode()) < 64),
                       st.tuples(st.sampled_from(list(TensorType)), shapes, st.booleans()), max_size=5),
       st.sampled_from([8, 32, 256]))
def test_tensors_come_back_as_written(
    folder: Path, tensors: dict[str, tuple[TensorType, list[int], bool]], alignment: int
) -> None:
    """Every type in any shape, given as rows of bytes or streamed."""
    path = folder / "tensors.gguf"
    writer = GGUFWriter(path, alignment=alignment)
    rng = np.random.default_rng(0)
    expected = {}
    for name, (type_, outer, streamed) in tensors.items():
        rows = rng.integers(0, 256, (*outer, 2 * type_.block_bytes), np.uint8)
        shape = (*outer, 2 * type_.block_size)
        writer.add_tensor(name, iter([rows[:1], rows[1:]]) if streamed and outer else rows, type_, shape)
        expected[name] = (type_, shape, rows.tobytes())
    writer.write()
    found = {t.name: (t.type, t.shape, t.data.tobytes()) for t in GGUFFile(path).tensors.values()}
    assert found == expected
    assert list(found) == list(expected)


def test_an_empty_array_keeps_its_element_type(tmp_path: Path) -> None:
    """What has no element to infer a type from is written with the type that it is given."""
    writer = GGUFWriter(tmp_path / "x.gguf")
    for value_type in ValueType:
        writer.add(value_type.name, [], value_type)
    writer.write()
    metadata = GGUFFile(writer.path).metadata
    assert [metadata.value_type(key) for key in metadata] == list(ValueType)
    assert all(len(metadata[key]) == 0 for key in metadata)
