"""The CPU backend: llama.cpp's logits on the truth path, and the same bits whatever keeps a row company."""

from collections.abc import Callable

import numpy as np
import pytest

from ggpy.backends.base import PAGE_TOKENS, CacheTypes
from ggpy.backends.reference import evaluate
from ggpy.errors import ConfigError, OutOfMemoryError, RequestError
from ggpy.gguf import GGUFFile
from ggpy.models import build_model
from tests.backends.steps import cpu, in_chunks, pages, sequence
from tests.models.arch_data import ArchModel, arch_names, load_wide_heads

Load = Callable[[str], ArchModel]
QUANTISED = ("llama_q8_0", "qwen2_q8_0", "llama_moe_q8_0")


@pytest.mark.parametrize("name", arch_names())
def test_truth_path_gives_llama_cpp_logits_at_every_position(name: str, arch_model: Load) -> None:
    """Float32 weights, activations and cache are within the model's tolerance everywhere."""
    model = arch_model(name)
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32") as backend:
        logits = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
    assert np.abs(logits - model.logits).max() <= model.tolerance


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "gpt-oss", "qwen3moe", "llama_moe_q8_0", "qwen2_q8_0"])
@pytest.mark.parametrize("sizes", [[1], [7], [31, 1, 33, 2], [50, 1]])
def test_bits_do_not_depend_on_the_chunks(name: str, sizes: list[int], arch_model: Load) -> None:
    """A prompt at once, token by token or in odd pieces gives equal logits at every position."""
    model = arch_model(name)
    with cpu(model) as backend:
        whole = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
        parts = in_chunks(backend, model.tokens, sizes, pages(7, 3, 5))
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("name", ["llama_q8_0", "gemma3", "qwen3moe", "llama_moe_q8_0"])
@pytest.mark.parametrize("n_threads", [1, 3, 4])
def test_bits_do_not_depend_on_the_threads(name: str, n_threads: int, arch_model: Load) -> None:
    """One, two, three or four threads give equal logits, prompt and single tokens alike."""
    model = arch_model(name)
    with cpu(model) as backend:
        expected = in_chunks(backend, model.tokens, [60, 1], pages(0, 1, 2))
    with cpu(model, n_threads=n_threads) as backend:
        assert np.array_equal(in_chunks(backend, model.tokens, [60, 1], pages(0, 1, 2)), expected)


@pytest.mark.parametrize("name", ["llama", "gemma2", "llama_moe_q8_0", "qwen2_q8_0"])
def test_bits_do_not_depend_on_other_sequences(name: str, arch_model: Load) -> None:
    """Three sequences in one step, one reading its prompt, one generating, one shorter, are each as if alone."""
    model = arch_model(name)
    long, short = model.tokens, model.tokens[20:49]
    with cpu(model) as backend:
        alone_long = in_chunks(backend, long, [128], pages(0, 1, 2))
        alone_short = in_chunks(backend, short, [128], pages(3))
        backend.forward([sequence(backend, long[:70], 0, pages(10, 12, 11), 0)])
        together = backend.forward([
            sequence(backend, long[70:71], 70, pages(10, 12, 11), 1),
            sequence(backend, short, 0, pages(20), len(short)),
            sequence(backend, long[:40], 0, pages(15, 14), 40)])
    assert np.array_equal(together[0], alone_long[70])
    assert np.array_equal(together[1: 1 + len(short)], alone_short)
    assert np.array_equal(together[1 + len(short):], alone_long[:40])


@pytest.fixture(scope="module")
def wide_heads(tmp_path_factory: pytest.TempPathFactory) -> ArchModel:
    """A model whose heads are whole blocks of q8_0."""
    return load_wide_heads(tmp_path_factory.mktemp("wide"))


@pytest.mark.parametrize("types", [("q8_0", "q8_0"), ("q8_0", "f16"), ("f16", "q8_0")])
def test_a_q8_0_cache_rounds_as_the_reference_does(types: CacheTypes, wide_heads: ArchModel) -> None:
    """In float32 arithmetic, keys and values of q8_0 give the logits of the plain formulas."""
    graph = build_model(GGUFFile(wide_heads.path)).graph
    exact, expected = (evaluate(graph, wide_heads.tokens, cache_types=t)["logits"] for t in (("f32", "f32"), types))
    with cpu(wide_heads, compute="f32", cache_type_k=types[0], cache_type_v=types[1]) as backend:
        logits = in_chunks(backend, wide_heads.tokens, [128], pages(0, 1, 2))
    # a key at the border of two integers may go the other way where its float32 differs in the last bit
    assert np.abs(logits - expected).mean() < 0.1 * np.abs(expected - exact).mean()


def test_bits_over_a_q8_0_cache_do_not_depend_on_company(wide_heads: ArchModel) -> None:
    """Chunks, threads and pages leave the logits alone."""
    with cpu(wide_heads, cache_type_k="q8_0", cache_type_v="q8_0") as backend:
        whole = in_chunks(backend, wide_heads.tokens, [128], pages(0, 1, 2))
        assert np.array_equal(in_chunks(backend, wide_heads.tokens, [1], pages(7, 3, 5)), whole)
    with cpu(wide_heads, cache_type_k="q8_0", cache_type_v="q8_0", n_threads=3) as backend:
        assert np.array_equal(in_chunks(backend, wide_heads.tokens, [31, 1, 33, 2], pages(9, 8, 7)), whole)


def test_heads_that_are_no_whole_blocks_have_no_q8_0_cache(arch_model: Load) -> None:
    """The error names the type, the layer, its heads' size and what would do."""
    message = "cache_type_v='q8_0': layer 0 of this model has heads of 16 dimensions, and q8_0 needs a multiple of 32"
    with pytest.raises(ConfigError, match=message), cpu(arch_model("llama"), cache_type_v="q8_0"):
        pass


@pytest.mark.parametrize("name", QUANTISED)
def test_bits_do_not_depend_on_the_layout(name: str, arch_model: Load) -> None:
    """Weights read where the file has them give the logits of packed ones."""
    model = arch_model(name)
    with cpu(model, repack="on") as backend:
        packed = in_chunks(backend, model.tokens, [40, 1], pages(0, 1, 2))
    with cpu(model, repack="off") as backend:
        assert np.array_equal(in_chunks(backend, model.tokens, [40, 1], pages(0, 1, 2)), packed)


def test_weights_stay_mapped_when_memory_is_short(arch_model: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """"auto" packs weights, unless their copy would take more than the machine has left."""
    model = arch_model("llama_q8_0")
    with cpu(model, repack="auto") as backend:
        assert not any("mapped" in entry.kernel for entry in backend.entries)
    monkeypatch.setattr("ggpy.backends.cpu.backend.available_memory_bytes", lambda: 50_000)
    with cpu(model, repack="auto") as backend:
        assert any("mapped" in entry.kernel for entry in backend.entries)


@pytest.mark.parametrize("name", ["llama_q8_0", "qwen2_q8_0"])
def test_int8_activations_stay_close_to_float32(name: str, arch_model: Load) -> None:
    """The default path differs from the truth by rounding: far less than llama.cpp's own 0.5."""
    model = arch_model(name)
    with cpu(model) as backend:
        logits = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
    assert np.abs(logits - model.logits).max() <= 0.5


def test_only_the_last_rows_are_output(arch_model: Load) -> None:
    """n_outputs picks the last rows of each sequence, in order; a step may have none."""
    model = arch_model("llama")
    with cpu(model) as backend:
        whole = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
        assert backend.forward([sequence(backend, model.tokens[:50], 0, pages(4, 5), 0)]).shape == (0, backend.n_vocab)
        some = backend.forward([sequence(backend, model.tokens[50:], 50, pages(4, 5, 6), 3)])
    assert np.array_equal(some, whole[-3:])


def test_greedy_continuation_is_llama_cpps(arch_model: Load) -> None:
    """24 tokens read, then one at a time: the same tokens as llama.cpp wherever its choice was clear."""
    model = arch_model("llama")
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32") as backend:
        table = pages(2, 1, 0)
        logits = backend.forward([sequence(backend, model.tokens[:24], 0, table, 1)])
        for i, (expected, margin) in enumerate(zip(model.greedy, model.margins, strict=True)):
            token = int(logits[0].argmax())
            assert token == expected or margin < 1e-3
            logits = backend.forward([sequence(backend, [int(expected)], 24 + i, table, 1)])


def test_float16_cache_holds_whole_pages(arch_model: Load) -> None:
    """A sequence that ends exactly at a page's end, and one token beyond, read the pages they should."""
    model = arch_model("llama")
    with cpu(model) as backend:
        whole = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
        backend.forward([sequence(backend, model.tokens[:2 * PAGE_TOKENS], 0, pages(9, 8, 7), 0)])
        after = backend.forward([sequence(backend, model.tokens[2 * PAGE_TOKENS:], 2 * PAGE_TOKENS, pages(9, 8, 7), 1)])
    assert np.array_equal(after[0], whole[-1])


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3moe"])
def test_hidden_states_are_those_of_the_reference(name: str, arch_model: Load) -> None:
    """The tape up to the hidden states gives what the logits would be made of, and logits still work after it."""
    model = arch_model(name)
    reference = evaluate(build_model(GGUFFile(model.path), model.n_ctx).graph, model.tokens)
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32") as backend:
        hidden = backend.hidden([sequence(backend, model.tokens, 0, pages(0, 1, 2), len(model.tokens))]).copy()
        logits = in_chunks(backend, model.tokens, [128], pages(0, 1, 2))
    assert np.abs(hidden - reference["hidden"]).max() <= model.tolerance
    assert np.abs(logits - model.logits).max() <= model.tolerance


def test_memory_that_the_system_does_not_give_is_an_error_that_says_for_what(arch_model: Load) -> None:
    """A cache for a thousand billion tokens."""
    with pytest.raises(OutOfMemoryError, match=r"keys and values: .* GB of memory are needed"), cpu(
            arch_model("llama"), n_pages=1 << 50):
        pass


@pytest.mark.parametrize("token", [-1, 1 << 30, None])
@pytest.mark.parametrize("n_sequences", [1, 2])
def test_a_token_without_a_row_is_an_error_and_nothing_is_read(
        token: int | None, n_sequences: int, arch_model: Load) -> None:
    """Kernels read wherever they are told to; None is the first one beyond the vocabulary."""
    with cpu(arch_model("llama_q8_0")) as backend:
        wrong = backend.n_vocab if token is None else token
        steps = [sequence(backend, [5], 0, pages(0), 1), sequence(backend, [wrong], 0, pages(1), 1)]
        with pytest.raises(RequestError, match=f"token {wrong} is not in the vocabulary; expected 0 to"):
            backend.forward(steps[-n_sequences:])


def test_a_position_that_was_not_learnt_is_an_error_and_nothing_is_read(arch_model: Load) -> None:
    """The positions of this model are a tensor."""
    model = arch_model("gpt2")
    n = GGUFFile(model.path).tensors["position_embd.weight"].shape[0]
    with cpu(model, n_pages=n // PAGE_TOKENS + 1, max_tokens=n + 1) as backend:
        ids = pages(*range(n // PAGE_TOKENS + 1))
        backend.forward([sequence(backend, [5] * n, 0, ids, 1)])
        with pytest.raises(RequestError, match=f"position {n:,} is beyond the model's last one, {n - 1:,}"):
            backend.forward([sequence(backend, [5], n, ids, 1)])
