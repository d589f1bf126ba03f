"""The library: `from ggpy import LLM`."""

import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggpy.llm
from ggpy import LLM, Completion, SamplingParams, Timings
from ggpy.backends.reference import evaluate
from ggpy.engine.request import Request
from ggpy.errors import (
    ConfigError,
    GgpyError,
    PromptTooLongError,
    RequestError,
)
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import Resolved
from ggpy.text import ChatTemplate
from ggpy.text.chat import CHATML
from tests.llm.reference_backend import ReferenceBackend
from tests.models.adapter_data import random_factors, write_adapter
from tests.models.arch_data import ArchModel

GREEDY = SamplingParams(temperature=0, max_tokens=8)
DRAWN = SamplingParams(seed=3, max_tokens=8, top_k=0, typical_p=0.9, xtc_probability=0.5, repeat_penalty=1.2,
                       dry_multiplier=0.8, dynatemp_range=0.3, ignore_eos=True)
MIROSTAT = SamplingParams(seed=3, max_tokens=8, mirostat=2, ignore_eos=True)


def test_importing_ggpy_loads_nothing_else() -> None:
    """Not even NumPy, until a public name is used."""
    code = "import sys, ggpy; print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'numba', 'jinja2'}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


def test_the_library_loads_no_compiler_and_nothing_of_servers_and_grammars() -> None:
    """Until somebody asks for what needs them: a start takes as long as its imports."""
    code = ("import sys, ggpy; ggpy.LLM; print(sorted({m.split('.')[0] for m in sys.modules} & "
            "{'numba', 'llvmlite', 'zmq', 'aiohttp', 'prometheus_client', 'llguidance', 'msgspec', 'jinja2', 'rich'}))")
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


def test_every_public_name_is_there() -> None:
    """The names of __all__, and no others."""
    assert all(getattr(ggpy, name).__name__ == name for name in ggpy.__all__)
    with pytest.raises(AttributeError, match="'ggpy' has no attribute 'LMM'"):
        _ = ggpy.LMM


def test_greedy_text_is_llama_cpps(load: Callable[..., LLM], tiny: ArchModel) -> None:
    """Token by token, up to the first step where two were nearly equal."""
    params = SamplingParams(temperature=0, max_tokens=len(tiny.greedy), ignore_eos=True)
    completion = load(n_ctx=128).generate(tiny.tokens[:24], params)
    close = np.flatnonzero(tiny.margins < 0.01)
    n = int(close[0]) if len(close) else len(tiny.greedy)
    assert n > 4
    assert completion.tokens[:n] == tiny.greedy[:n].tolist()
    assert (completion.finish_reason, completion.n_prompt) == ("length", 24)


@pytest.mark.parametrize("positions", ["all", "last"])
def test_logits_are_llama_cpps(load: Callable[..., LLM], tiny: ArchModel, positions: Any) -> None:
    """For every position or the last, read in chunks of 16 tokens."""
    logits = load(n_ctx=128, max_batch_tokens=16).logits(tiny.tokens, positions)
    expected = tiny.logits if positions == "all" else tiny.logits[-1:]
    assert logits.shape == expected.shape
    assert np.abs(logits - expected).max() < tiny.tolerance


def test_text_and_tokens_translate_both_ways(load: Callable[..., LLM]) -> None:
    """BOS is added on request, control tokens are read on request."""
    llm = load(n_ctx=128)
    ids = llm.tokenize("Hello there")
    assert ids[0] == llm.tokenizer.bos_id
    assert llm.detokenize(llm.tokenize("Hello there", add_special=False)) == "Hello there"
    bos = llm.detokenize(ids[:1])
    assert llm.tokenize(bos, add_special=False, parse_special=True) == ids[:1]
    assert len(llm.tokenize(bos, add_special=False)) > 1


def test_a_stream_yields_the_text_that_generate_returns(load: Callable[..., LLM]) -> None:
    """Its completion is the same, its pieces joined are the text."""
    llm = load(n_ctx=128)
    whole = llm.generate("Hello", GREEDY)
    stream = llm.stream("Hello", GREEDY)
    assert "".join(stream) == whole.text
    assert stream.completion.tokens == whole.tokens
    assert stream.completion.finish_reason == whole.finish_reason == "length"


def test_a_stream_may_be_closed_while_it_waits(
    load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a handler of Ctrl-C does in the middle of a long prompt: it ends at once, whatever the step still does."""
    reached, opened = threading.Event(), threading.Event()
    forward = ReferenceBackend.forward
    n_steps = 0

    def gated(self: ReferenceBackend, sequences: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        reached.set()
        assert opened.wait(30)
        return forward(self, sequences)

    monkeypatch.setattr(ReferenceBackend, "forward", gated)
    llm = load(n_ctx=64, max_batch_tokens=4)
    stream = llm.stream([1] * 30, GREEDY)

    def close() -> None:
        assert reached.wait(30)
        stream.close()

    threading.Thread(target=close, daemon=True).start()
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"
    opened.set()
    llm.close()
    assert n_steps == 1


def test_a_closed_stream_generates_no_more(load: Callable[..., LLM]) -> None:
    """Its pages are free for the next request, its completion says that it was cancelled."""
    llm = load(n_ctx=64)
    stream = llm.stream(range(40), SamplingParams(temperature=0, ignore_eos=True))
    next(stream)
    stream.close()
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"
    llm.stream(range(40))           # never read: dropped at once
    assert llm.logits(list(range(60))).shape == (1, 280)


def test_a_prompt_that_does_not_fit_is_refused_at_once(load: Callable[..., LLM]) -> None:
    """Not only when the stream is read; logits need no room for an answer."""
    llm = load(n_ctx=64)
    with pytest.raises(PromptTooLongError, match="64 tokens but the context holds 64"):
        llm.stream(range(64))
    with pytest.raises(PromptTooLongError, match="65 tokens but the context holds 64"):
        llm.logits(range(65))
    assert llm.logits(range(64)).shape == (1, 280)
    with pytest.raises(RequestError, match="token 280 is not in the vocabulary"):
        llm.generate([280])


@pytest.mark.parametrize("params", [GREEDY, DRAWN, MIROSTAT], ids=["greedy", "drawn", "mirostat"])
def test_threads_share_the_model(load: Callable[..., LLM], params: SamplingParams) -> None:
    """Each gets what it would get alone, and none waits for the others to end."""
    llm = load(n_ctx=256)
    prompts = ["one", "two two", "three three three", "4"]
    alone = [llm.generate(prompt, params) for prompt in prompts]
    together: list[Completion | None] = [None] * len(prompts)
    everyone_has_begun = threading.Barrier(len(prompts))

    def work(i: int) -> None:
        stream = llm.stream(prompts[i], params)
        next(stream)
        everyone_has_begun.wait(timeout=60)
        together[i] = stream.finish()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [completion and completion.tokens for completion in together] == [completion.tokens for completion in alone]


def test_an_error_in_one_answer_reaches_its_caller(
    load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the logits of a damaged model."""
    llm = load(n_ctx=64)
    monkeypatch.setattr(ReferenceBackend, "forward", lambda self, sequences: np.full((1, 280), np.nan, np.float32))
    with pytest.raises(GgpyError, match="is the model file damaged"):
        llm.generate("Hello", GREEDY)


PAGE = Path(__file__).parents[2] / "docs" / "library.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_documentation_run(tiny: ArchModel, monkeypatch: pytest.MonkeyPatch,
                                               tmp_path: Path) -> None:
    """One after the other, with no name that none of them has made, on the tiny model, whatever they call theirs."""
    for name in ("poems.gguf", "french.gguf"):
        write_adapter(tmp_path / name, random_factors(tiny, ("blk.0.attn_q.weight",)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ggpy.llm, "resolve", lambda name: Resolved(tiny.path))
    monkeypatch.setattr(LLM, "chat_template", ChatTemplate(CHATML + "{{ tools[0].function.name if tools }}"))
    # the answers of a random model have no end
    monkeypatch.setattr(ggpy.llm, "Request", lambda ids, params, **options: Request(
        ids, replace(params, max_tokens=8), **options))
    assert len(EXAMPLES) >= 6
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        exec(example, names)
    assert len(names["answers"]) == len(names["prompts"])


def test_closing_frees_the_backend_and_ends_all_use(load: Callable[..., LLM]) -> None:
    """The with statement does it."""
    with load(n_ctx=64) as llm:
        stream = llm.stream("Hello", SamplingParams(ignore_eos=True))
    assert [backend.is_closed for backend in ReferenceBackend.opened] == [True]
    with pytest.raises(GgpyError, match="this LLM is closed"):
        llm.generate("Hello")
    with pytest.raises(GgpyError, match="this LLM is closed"):
        stream.finish()
    llm.close()


def test_dropping_the_model_frees_the_backend(tiny: ArchModel, load: Callable[..., LLM]) -> None:
    """Its threads must not outlive its memory."""
    llm = LLM(tiny.path, n_ctx=64)
    del llm
    gc.collect()
    assert [backend.is_closed for backend in ReferenceBackend.opened] == [True]


def test_a_larger_pool_lets_requests_run_together(
    load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that need more than 64 tokens have to take turns in a pool of 64, and run side by side in one of 128."""
    def n_steps(**options: Any) -> int:
        llm = load(n_ctx=64, **options)
        n_calls = 0
        forward = ReferenceBackend.forward
        both_are_there = threading.Event()

        def counted(self: ReferenceBackend, sequences: Any) -> Any:
            nonlocal n_calls
            n_calls += 1
            assert both_are_there.wait(30)
            return forward(self, sequences)

        with monkeypatch.context() as patch:
            patch.setattr(ReferenceBackend, "forward", counted)
            params = SamplingParams(max_tokens=4, ignore_eos=True)
            streams = [llm.stream(prompt, params) for prompt in ([1] * 40, [2] * 24)]
            both_are_there.set()
            assert [stream.finish().finish_reason for stream in streams] == ["length", "length"]
        return n_calls

    assert n_steps() == 8
    assert n_steps(pool_tokens=128) in (4, 5)       # the second may come after the first's first step


def test_the_speed_of_the_prompt_leaves_out_what_was_cached() -> None:
    """100 tokens of which 60 were known took 2 seconds; without a first token nothing was measured."""
    timings = Timings(n_prompt=100, n_generated=5, prompt_s=2.0, generation_s=2.0, n_cached=60)
    assert (timings.prompt_tokens_per_s, timings.tokens_per_s) == (20, 2)
    nothing = Timings(n_prompt=100, n_generated=0, prompt_s=0.0, generation_s=0.0)
    assert (nothing.prompt_tokens_per_s, nothing.tokens_per_s) == (0, 0)


def test_a_completion_says_what_was_cached(load: Callable[..., LLM]) -> None:
    """The same prompt again: all of it but the last token, which gives the logits. What was new the first time."""
    llm = load(n_ctx=128)
    new = llm.generate([7] * 40, GREEDY)
    completion = llm.generate([7] * 40, GREEDY)
    assert (completion.n_prompt, completion.n_cached, completion.timings.n_cached) == (40, 39, 39)
    assert [each.miss and (each.miss.cause, each.miss.position) for each in (new, completion)] == [
        ("new_prefix", 0), ("none", 39)]


def test_a_completion_says_its_seed(load: Callable[..., LLM]) -> None:
    """Drawn where none was given; with it the answer comes again."""
    llm = load(n_ctx=128)
    first = llm.generate([7] * 4, SamplingParams(max_tokens=12, temperature=2, ignore_eos=True))
    again = llm.generate([7] * 4, SamplingParams(max_tokens=12, temperature=2, ignore_eos=True, seed=first.seed))
    assert (again.tokens, again.seed) == (first.tokens, first.seed)
    assert llm.generate([7] * 4, SamplingParams(max_tokens=1)).seed != first.seed


def test_a_real_model_answers(model_path: Callable[[str], Path]) -> None:
    """From the file to the text; in float32, since int8 rounds so small a model into other answers."""
    with LLM(model_path("smollm2"), n_ctx=256, compute="f32") as llm:
        completion = llm.chat([{"role": "user", "content": "What is the capital of France?"}],
                              SamplingParams(temperature=0, max_tokens=64))
    assert "Paris" in completion.text
    assert "<|im_end|>" not in completion.text
    assert completion.finish_reason == "stop"


def test_company_does_not_change_a_real_models_answer(model_path: Callable[[str], Path]) -> None:
    """Neither other requests, nor the size of a step, nor how many rows have an output."""
    prompts = ["The sun", "Once upon a time there was a small " * 4, "1 2 3 4"]
    params = SamplingParams(seed=3, max_tokens=12, ignore_eos=True)
    path = model_path("smollm2")
    with LLM(path, n_ctx=256) as llm, LLM(path, n_ctx=64, max_batch_tokens=7) as small:
        alone = [llm.generate(prompt, params).tokens for prompt in prompts]
        streams = [llm.stream(prompt, params) for prompt in prompts]
        assert [stream.finish().tokens for stream in streams] == alone
        assert [small.generate(prompt, params).tokens for prompt in prompts] == alone
        ids = llm.tokenize(prompts[1])
        every = llm.logits(ids, "all")
        assert np.array_equal(small.logits(ids, "all"), every)
        assert np.array_equal(llm.logits(ids, "last"), every[-1:])


def test_embeddings_are_pooled_hidden_states(load: Callable[..., LLM], tiny: ArchModel) -> None:
    """The mean over a text's tokens, the first or the last one's state, of length 1 unless asked otherwise."""
    from ggpy.models import build_model

    llm = load()
    hidden = evaluate(build_model(GGUFFile(tiny.path)).graph, llm.tokenize("the cat"))["hidden"]
    assert np.allclose(llm.embed(["the cat"], normalize=False), hidden.mean(axis=0), atol=1e-5)
    assert np.allclose(llm.embed(["the cat"], pooling="cls", normalize=False), hidden[0], atol=1e-5)
    assert np.allclose(llm.embed(["the cat"], pooling="last", normalize=False), hidden[-1], atol=1e-5)
    vectors = llm.embed(["the cat", "and in the sea"])
    assert vectors.shape == (2, llm.n_embd)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert llm.embed([]).shape == (0, llm.n_embd)
    with pytest.raises(ConfigError, match="pooling='sum': expected one of mean, cls, last"):
        llm.embed(["a"], pooling="sum")    # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"texts='text': expected a list of strings; give a single one as \[text\]"):
        llm.embed("text")
    with pytest.raises(RequestError, match="texts=5: expected a list of strings"):
        llm.embed(5)            # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"texts\[1\]=\[5\]: expected a string"):
        llm.embed(["a", [5]])   # type: ignore[list-item]
