"""Low-rank adapters: as if they were merged into the weights, for the rows that ask for them and for no other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.backends.base import Scales, StepSequence
from ggpy.backends.cpu import CpuBackend
from ggpy.backends.reference import evaluate
from ggpy.gguf import GGUFFile
from ggpy.graph.adapters import Adapter, LowRank
from ggpy.models import build_model
from ggpy.models.adapters import read_adapter
from tests.backends.steps import cpu, pages, sequence
from tests.models.adapter_data import Factors, product, random_factors, write_adapter, write_merged
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]
Float32 = NDArray[np.float32]
ALPHA, SCALE = 6.0, 0.5         # of rank 2: b @ a times 1.5
MATRICES = {
    "llama": ("blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.1.attn_k.weight",
              "blk.0.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "output.weight"),
    "phi3": ("blk.0.attn_qkv.weight", "blk.1.ffn_up.weight"),           # used in parts
    "gpt2": ("blk.0.attn_qkv.weight", "blk.1.ffn_down.weight"),         # with biases
    "qwen2_q8_0": ("blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.1.attn_output.weight"),
}


def adapter_of(model: ArchModel, factors: Factors, path: Path) -> Adapter:
    built = build_model(GGUFFile(model.path))
    return read_adapter(write_adapter(path, factors, alpha=ALPHA, arch=built.arch), built)


def merged_logits(model: ArchModel, added: dict[str, Float32], path: Path) -> Float32:
    """Of the model whose weights have `added` in them."""
    gguf = GGUFFile(write_merged(path, model, added))
    return evaluate(build_model(gguf).graph, model.tokens)["logits"]


def forward(backend: CpuBackend, *parts: tuple[Sequence[int] | NDArray[np.int32], Scales]) -> list[Float32]:
    """Logits of every token of each part, all in one step."""
    steps: list[StepSequence] = []
    for i, (tokens, scales) in enumerate(parts):
        ids = pages(*range(4 * i, 4 * i + 4))
        steps.append(replace(sequence(backend, tokens, 0, ids, len(tokens)), adapters=scales))
    logits = backend.forward(steps).copy()
    return np.split(logits, np.cumsum([len(tokens) for tokens, _ in parts])[:-1])


@pytest.mark.parametrize("name", MATRICES)
def test_an_adapter_is_as_if_it_were_merged(name: str, arch_model: Load, tmp_path: Path) -> None:
    """In float32, on both backends; and it is not nothing."""
    model = arch_model(name)
    factors = random_factors(model, MATRICES[name])
    expected = merged_logits(model, product(factors, SCALE * ALPHA / 2), tmp_path / "merged.gguf")
    adapter = adapter_of(model, factors, tmp_path / "adapter.gguf")
    graph = build_model(GGUFFile(model.path)).graph
    tolerance = 1e-4 * np.abs(expected).max()
    plain = evaluate(graph, model.tokens)["logits"]
    assert np.abs(plain - expected).max() > 100 * tolerance
    assert np.abs(evaluate(graph, model.tokens, adapters=[(adapter, SCALE)])["logits"] - expected).max() < tolerance
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32", adapters=[adapter]) as backend:
        [logits] = forward(backend, (model.tokens, ((0, SCALE),)))
    assert np.abs(logits - expected).max() < tolerance


def test_an_adapter_of_the_token_embedding_has_its_factors_changed_round(arch_model: Load, tmp_path: Path) -> None:
    """A has a row for each token; a scale of the embedding is the adapter's too, and a tied output has none of it."""
    model = arch_model("gemma3")
    n_vocab, n_embd = GGUFFile(model.path).tensors["token_embd.weight"].shape
    rng = np.random.default_rng(3)
    a, b = (rng.normal(0, 0.2, (n, 2)).astype(np.float32) for n in (n_vocab, n_embd))
    path = write_adapter(tmp_path / "adapter.gguf", {"token_embd.weight": (a, b)}, alpha=2.0, arch="gemma3")
    built = build_model(GGUFFile(model.path))
    adapter = read_adapter(path, built)
    tied = GGUFFile(model.path).tensors["token_embd.weight"]
    added = {"token_embd.weight": product({"": (b.T, a)}, SCALE)[""]}
    merged = GGUFFile(write_merged(tmp_path / "merged.gguf", model, added))
    graph = build_model(merged).graph
    for op in graph.nodes:
        if getattr(op, "rows", "") == "outputs" and getattr(op, "weight", None) is not None and op.width == n_vocab:
            object.__setattr__(op, "weight", tied)
    expected = evaluate(graph, model.tokens)["logits"]
    tolerance = 1e-4 * np.abs(expected).max()
    assert np.abs(evaluate(built.graph, model.tokens)["logits"] - expected).max() > 100 * tolerance
    found = evaluate(built.graph, model.tokens, adapters=[(adapter, SCALE)])["logits"]
    assert np.abs(found - expected).max() < tolerance
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32", adapters=[adapter]) as backend:
        [logits] = forward(backend, (model.tokens, ((0, SCALE),)))
    assert np.abs(logits - expected).max() < tolerance


@pytest.mark.parametrize("options", [{}, {"compute": "f32"}, {"repack": "off"}])
def test_rows_without_adapters_keep_their_bits(options: dict[str, Any], arch_model: Load, tmp_path: Path) -> None:
    """Beside rows that have some; those with adapters have the bits that they have alone, whatever else is loaded."""
    model = arch_model("llama_q8_0")
    names = ("blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.1.ffn_down.weight", "output.weight")
    adapters = [adapter_of(model, random_factors(model, names[i:], seed=i), tmp_path / f"{i}.gguf") for i in range(2)]
    tokens = model.tokens[:20]
    with cpu(model, **options) as backend:
        [plain] = forward(backend, (tokens, ()))
    with cpu(model, adapters=adapters[:1], **options) as backend:
        [alone] = forward(backend, (tokens, ((0, 0.7),)))
    with cpu(model, adapters=adapters, **options) as backend:
        [both] = forward(backend, (tokens, ((0, 0.7), (1, -1.0))))
        one_by_one = [forward(backend, (tokens, ()))[0], forward(backend, (tokens, ((0, 0.7),)))[0]]
        mixed = forward(backend, (tokens, ((0, 0.7),)), (tokens, ()), (tokens, ((0, 0.7), (1, -1.0))), (tokens[:3], ()))
    for found, expected in zip([*one_by_one, *mixed], [plain, alone, alone, plain, both, plain[:3]], strict=True):
        assert np.array_equal(found, expected)
    assert not np.allclose(plain, alone)
    assert not np.allclose(alone, both)


def test_bits_do_not_depend_on_threads_and_chunks(arch_model: Load, tmp_path: Path) -> None:
    """Nor on which rows are output, which output's adapter counts by."""
    model = arch_model("llama")
    adapter = adapter_of(model, random_factors(model, MATRICES["llama"]), tmp_path / "adapter.gguf")
    scales: Scales = ((0, 1.5),)
    with cpu(model, adapters=[adapter]) as backend:
        [expected] = forward(backend, (model.tokens, scales))
        ids, found = pages(0, 1, 2, 3), []
        for start in range(0, len(model.tokens), 7):
            part = model.tokens[start : start + 7]
            step = replace(sequence(backend, part, start, ids, 1), adapters=scales)
            silent = sequence(backend, part[:2], 0, pages(5), 2)
            found.append(backend.forward([silent, step])[2].copy())
            hidden = backend.hidden([silent, step]).copy()
            assert np.isfinite(hidden).all()
    last = [min(start + 7, len(model.tokens)) - 1 for start in range(0, len(model.tokens), 7)]
    assert np.array_equal(np.array(found), expected[last])
    with cpu(model, adapters=[adapter], n_threads=1) as backend:
        assert np.array_equal(forward(backend, (model.tokens, scales))[0], expected)


def test_embeddings_stay_a_kernels_where_no_adapter_adds_to_them(arch_model: Load, tmp_path: Path) -> None:
    """Looking them up with NumPy takes far longer, and is for adapters of the embedding alone; bits are the same."""
    model = arch_model("llama_q8_0")
    adapter = adapter_of(model, random_factors(model, ("blk.0.attn_q.weight",)), tmp_path / "adapter.gguf")
    n_vocab, n_embd = GGUFFile(model.path).tensors["token_embd.weight"].shape
    none = LowRank(np.zeros((1, n_vocab), np.float32), np.zeros((n_embd, 1), np.float32))
    found = []
    for each, by_kernel in ((adapter, True), (replace(adapter, embedding=none), False)):
        with cpu(model, adapters=[each]) as backend:
            kernels = {entry.kernel for entry in backend._adapted_tape.entries}
            assert any(name.endswith(".embed") for name in kernels) == by_kernel
            found.append(forward(backend, (model.tokens, ((0, 0.5),)))[0])
    assert np.array_equal(found[0], found[1])
