"""`ggpy show`, `ggpy list` and `ggpy rm`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy import cli
from ggpy.backends.cpu import CpuBackend
from ggpy.gguf import GGUFFile, GGUFWriter
from ggpy.hub import catalogue
from ggpy.hub.store import ModelStore, StoredModel
from ggpy.models import build_model
from ggpy.tools.forecast import forecast
from ggpy.tools.made_rows import modelfile_rows
from ggpy.tools.show import describe, kv_bytes_per_token
from tests.models.arch_data import ArchModel

LLAMA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.context_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}


def write(path: Path, metadata: dict[str, Any]) -> Path:
    """A GGUF file with that metadata, a tensor of 4 x 8 f32 and two of 16 f16."""
    writer = GGUFWriter(path)
    for key, value in metadata.items():
        writer.add(key, value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), np.float32))
    for i in range(2):
        writer.add_tensor(f"blk.{i}.norm.weight", np.zeros(16, np.float16))
    writer.write()
    return path


def test_describe_reads_the_header(tmp_path: Path) -> None:
    """Counts and sizes can be checked by hand."""
    description = describe(GGUFFile(write(tmp_path / "tiny.gguf", LLAMA)))
    assert (description.architecture, description.name) == ("llama", "Tiny")
    assert description.parameters == 4 * 8 + 2 * 16
    assert [(q.type, q.tensors, q.size_bytes) for q in description.quants] == [("F32", 1, 128), ("F16", 2, 64)]
    assert (description.n_ctx, description.n_vocab, description.n_layer) == (128, 3, 2)
    assert not description.has_chat_template


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, 2 * 2 * (16 + 16) * 2),                                                        # layers, heads, dims, f16
    ({"llama.attention.key_length": 32, "llama.attention.value_length": 8}, 2 * 2 * (32 + 8) * 2),
    ({"llama.attention.head_count_kv": [2, 0]}, 1 * 2 * (16 + 16) * 2),                 # one layer has no attention
    ({"llama.attention.head_count_kv": [2, 2, 2]}, 2 * 4 * (16 + 16) * 2),              # not one per layer
    ({"llama.attention.kv_lora_rank": 8}, None),                                        # compressed K and V
    ({"llama.block_count": 4_000_000_000}, None),                                       # more layers than tensors
], ids=["grouped", "own dims", "per layer", "wrong length", "compressed", "absurd"])
def test_kv_bytes_per_token(tmp_path: Path, changes: dict[str, Any], expected: int | None) -> None:
    """Two layers of two KV heads of 16 dims, K and V, two bytes each; None where that is not how it works."""
    assert kv_bytes_per_token(GGUFFile(write(tmp_path / "tiny.gguf", LLAMA | changes))) == expected


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, None),                                                                             # heads of 16
    ({"llama.attention.key_length": 32, "llama.attention.value_length": 64}, 2 * 2 * (34 + 68)),
    ({"llama.attention.key_length": 64}, None),
])
def test_q8_0_takes_34_bytes_for_32_values(tmp_path: Path, changes: dict[str, Any], expected: int | None) -> None:
    """Two layers of two KV heads; None where heads are no whole blocks."""
    assert kv_bytes_per_token(GGUFFile(write(tmp_path / "tiny.gguf", LLAMA | changes)), "q8_0") == expected


def test_memory_of_a_model_that_runs_is_that_of_its_plan(arch_model: Callable[[str], ArchModel]) -> None:
    """KV in whole pages, weights in whole groups of rows; for the default context, and for the model's own."""
    file = GGUFFile(arch_model("llama").path)
    description = describe(file)
    memory = description.memory
    assert description.n_ctx is not None
    assert description.kv_bytes_per_token is not None
    backend = CpuBackend(file, build_model(file).graph, n_threads=1, n_pages=description.n_ctx // 32, max_outputs=64)
    assert description.unsupported is None
    assert memory.is_exact
    assert memory.weights_packed_bytes == pytest.approx(backend.weights.arena.size_bytes, abs=64 * len(file.tensors))
    assert memory.activations_bytes == backend.plan.arena_bytes
    longest = memory.contexts[-1]
    assert longest.n_ctx == description.n_ctx
    assert longest.kv_bytes == description.kv_bytes_per_token * description.n_ctx
    backend.close()


def test_layers_with_windows_need_less_memory(arch_model: Callable[[str], ArchModel]) -> None:
    """Of 8,192 tokens, those with a window of 16 keep half: 128 pages in place of 256."""
    file = GGUFFile(arch_model("gemma3").path)
    memory, _ = forecast(file, 8192, None)
    backend = CpuBackend(file, build_model(file).graph, n_threads=1, n_pages=1)
    assert memory.contexts[-1].kv_bytes == 256 * backend.page_bytes(0) + 128 * backend.page_bytes(1)
    backend.close()


def test_memory_of_any_other_model_is_told_from_its_tensors(tmp_path: Path) -> None:
    """A matrix of 4 x 8 f32 in a group of 16 rows, and 256 bytes of KV for each of 128 tokens."""
    description = describe(GGUFFile(write(tmp_path / "tiny.gguf", LLAMA | {"general.architecture": "frobnicator"} | {
        key.replace("llama.", "frobnicator."): value for key, value in LLAMA.items()
        if key.startswith("llama.")})))
    assert "architecture 'frobnicator' is not supported" in (description.unsupported or "")
    assert not description.memory.is_exact
    assert description.memory.weights_packed_bytes == description.memory.weights_mapped_bytes == 16 * 8 * 4
    assert [(c.n_ctx, c.kv_bytes, c.total_packed_bytes) for c in description.memory.contexts] == [
        (128, 128 * 256, 128 * 256 + 512)]


def test_the_template_is_printed_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands in the file; a file without one is an error."""
    template = "{% for m in messages %}\n<{{ m.role }}>{% endfor %}"
    assert cli.main(["show", "--template", str(write(
        tmp_path / "tiny.gguf", LLAMA | {"tokenizer.chat_template": template}))]) == 0
    assert capsys.readouterr().out == template + "\n"
    assert cli.main(["show", "--template", str(write(tmp_path / "tiny.gguf", LLAMA))]) == 1
    assert "there is no chat template" in capsys.readouterr().err


def test_license_and_tokenizer_are_shown(tmp_path: Path) -> None:
    """The vocabulary's kind and how text is split before it."""
    description = describe(GGUFFile(write(tmp_path / "tiny.gguf", LLAMA | {
        "general.license": "mit", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2"})))
    assert (description.license, description.tokenizer) == ("mit", "gpt2, qwen2")


def test_an_unknown_architecture_is_shown_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Describing a model does not take a model that ggpy can run."""
    path = write(tmp_path / "odd.gguf", {"general.architecture": "frobnicator", "frobnicator.context_length": 7})
    assert cli.main(["show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["architecture"], shown["n_ctx"], shown["kv_bytes_per_token"]) == ("frobnicator", 7, None)


def test_a_file_without_any_metadata_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the file does not say is said to be missing."""
    assert cli.main(["show", str(write(tmp_path / "bare.gguf", {}))]) == 0
    assert "architecture    not stated" in capsys.readouterr().out


@pytest.mark.parametrize(("key", "value", "message"), [
    ("llama.attention.head_count", ["a", "b"], "found ['a', 'b'], expected an array of integers"),
    ("llama.attention.head_count_kv", [2.5, 1.0], "found [2.5, 1.0], expected an array of integers"),
    ("tokenizer.ggml.tokens", 7, "found UINT32, expected an array"),
    ("tokenizer.ggml.tokens", "abc", "found STRING, expected an array"),
    ("general.name", [1], "found an array of 1 INT32, expected a string"),
])
def test_a_value_of_the_wrong_type_is_named(
    key: str, value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the key, what was found and what was expected."""
    assert cli.main(["show", str(write(tmp_path / "odd.gguf", LLAMA | {key: value}))]) == 1
    error, = capsys.readouterr().err.splitlines()
    assert f"key '{key}'" in error
    assert message in error


def test_piped_lines_are_whole_and_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long values are not cut, [brackets] are no markup, and a hostile file's escape sequences reach no terminal."""
    name = "[bold]" + "long " * 60 + "\x1b[2Jend"
    assert cli.main(["show", str(write(tmp_path / "tiny.gguf", LLAMA | {"general.name": name}))]) == 0
    output = capsys.readouterr().out
    assert "[bold]" + "long " * 60 + "�[2Jend" in output
    assert "\x1b" not in output


def test_piped_lines_end_where_their_text_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Blanks that only fill a row to the table's width are for nobody."""
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > len(catalogue.CATALOGUE)
    assert lines == [line.rstrip() for line in lines]


def test_show_does_not_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name whose model is absent is an error that says how to get it."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    assert cli.main(["show", "smollm2"]) == 1
    assert "run `ggpy pull smollm2:135m` first" in capsys.readouterr().err


def test_what_the_maker_of_a_model_said_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, not by that of the file; memory is that of the context that he gave it."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    file = write(tmp_path / "tiny.gguf", LLAMA)
    mario = StoredModel(name="mario:latest", source=str(file), parent="tiny:latest", adapters=("a.gguf",),
                        template="{{ messages }}", system="You are Mario.\nIt's you.",
                        parameters={"num_ctx": 64, "stop": ["a", "b"]}, licenses=("\nMIT\nAnd so on",),
                        messages=({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "\x1bIt's me"}))
    ModelStore().save(mario)
    assert cli.main(["show", "mario"]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"context length 128 tokens, but num_ctx is 64", "chat template yes; --template prints it"} <= set(told)
    start = told.index("SAID BY ITS MAKER")
    assert told[start + 1 : start + 11] == [
        f"from {file}, by way of tiny:latest", "adapter a.gguf",
        "template in place of the file's; --template prints it", "system You are Mario. It's you.",
        "parameter num_ctx 64", 'parameter stop "a"', 'parameter stop "b"',
        "message user Hi", "message assistant �It's me", "license MIT"]
    assert any(line.startswith("KV cache, 64 tokens") for line in told)

    assert cli.main(["show", "mario", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["made"]["system"], shown["made"]["parameters"]) == (mario.system, mario.parameters)
    assert (shown["n_ctx"], shown["memory"]["contexts"][-1]["n_ctx"]) == (128, 64)
    assert cli.main(["show", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["made"] is None


def test_a_model_made_of_another_directly_is_from_it() -> None:
    """Nothing came between."""
    assert modelfile_rows(StoredModel(name="a:latest", source="b:latest", parent="b:latest")) == [("from", "b:latest")]


def test_rm_deletes_what_list_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is here is listed with its path until it is removed; removing it twice is an error."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    entry = catalogue.find("smollm2")
    assert entry is not None
    entry.folder.mkdir(parents=True)
    with entry.path.open("wb") as file:
        file.truncate(entry.size_bytes)

    assert cli.main(["list", "--paths"]) == 0
    assert str(entry.path) in capsys.readouterr().out
    assert cli.main(["rm", "smollm2"]) == 0
    assert cli.main(["list", "--paths"]) == 0
    assert str(entry.path) not in capsys.readouterr().out
    assert cli.main(["rm", "smollm2"]) == 1
    assert "smollm2:135m is not here" in capsys.readouterr().err
