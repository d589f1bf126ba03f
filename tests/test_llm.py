"""The library: `from ggpy import LLM`."""

import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import ggpy.llm
from ggpy import LLM, Completion, SamplingParams, Timings
from ggpy.backends.base import PAGE_TOKENS, StepSequence
from ggpy.backends.reference import evaluate
from ggpy.engine.request import Request
from ggpy.errors import (
    ConfigError,
    GgpyError,
    PromptTooLongError,
    PullError,
    RequestError,
    TemplateError,
    TokenizerError,
)
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import OutputKind
from ggpy.models import Model, hparams_of
from ggpy.text import ChatTemplate
from ggpy.text.chat import CHATML
from tests.models.arch_data import ArchModel, load_arch

GREEDY = SamplingParams(temperature=0, max_tokens=8)
DRAWN = SamplingParams(seed=3, max_tokens=8, top_k=0, typical_p=0.9, xtc_probability=0.5, repeat_penalty=1.2,
                       dry_multiplier=0.8, dynatemp_range=0.3, ignore_eos=True)
MIROSTAT = SamplingParams(seed=3, max_tokens=8, mirostat=2, ignore_eos=True)
HELLO = [{"role": "user", "content": "Hello"}]


class ReferenceBackend:
    """Computes whole prefixes in NumPy; pages hold tokens instead of keys and values."""

    opened: ClassVar[list["ReferenceBackend"]] = []

    def __init__(self, gguf: Any, model: Model, *, n_pages: int, max_tokens: int, max_outputs: int, **_: Any) -> None:
        self.graph, self.n_vocab, self.n_embd = model.graph, model.hparams.n_vocab, model.hparams.n_embd
        self.n_pages, self.max_tokens, self.max_outputs = n_pages, max_tokens, max_outputs
        self.pages = np.zeros((n_pages, PAGE_TOKENS), np.int64)
        self.is_closed, self.team = False, None
        self.opened.append(self)

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "logits", self.n_vocab)

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self._outputs(sequences, "hidden", self.n_embd)

    def _outputs(self, sequences: Sequence[StepSequence], kind: OutputKind, width: int) -> NDArray[np.float32]:
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        rows = [np.empty((0, width), np.float32)]
        for s in sequences:
            end = s.first_position + len(s.tokens)
            positions = np.arange(s.first_position, end)
            self.pages[s.page_table[positions // PAGE_TOKENS], positions % PAGE_TOKENS] = s.tokens
            if s.n_outputs:
                tokens, outputs = self.pages[s.page_table].ravel()[:end], range(end - s.n_outputs, end)
                rows.append(evaluate(self.graph, tokens, outputs=outputs)[kind])
        return np.concatenate(rows)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ArchModel:
    """A random llama of 280 tokens, with llama.cpp's logits."""
    return load_arch("llama", tmp_path_factory.mktemp("arch"))


@pytest.fixture
def load(tiny: ArchModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LLM]]:
    """Loads the tiny model, on the NumPy backend."""
    monkeypatch.setattr(ggpy.llm, "open_backend", ReferenceBackend)
    monkeypatch.setattr(ReferenceBackend, "opened", [])
    loaded: list[LLM] = []

    def open_llm(**options: Any) -> LLM:
        loaded.append(LLM(tiny.path, **options))
        return loaded[-1]

    yield open_llm
    for llm in loaded:
        llm.close()


def test_importing_ggpy_loads_nothing_else() -> None:
    """Not even NumPy, until a public name is used."""
    code = "import sys, ggpy; print(sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'numba', 'jinja2'}))"
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


def test_messages_are_answered_in_the_chat_template(load: Callable[..., LLM]) -> None:
    """The tiny model has none, so they are written as ChatML; BOS stands in front once."""
    llm = load(n_ctx=256)
    ids = llm.chat_tokens(HELLO)
    assert llm.detokenize(ids[1:]) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == llm.tokenizer.bos_id
    assert llm.chat(HELLO, GREEDY).tokens == llm.generate(ids, GREEDY).tokens
    assert "".join(llm.stream_chat(HELLO, GREEDY)) == llm.chat(HELLO, GREEDY).text


def text_of(llm: LLM, messages: Any, **options: Any) -> str:
    """What the model reads, without BOS."""
    return llm.detokenize(llm.chat_tokens(messages, **options)[1:])


def test_messages_are_written_with_options(load: Callable[..., LLM]) -> None:
    """Tools, documents and variables reach the template; the answer is opened unless it is not wanted."""
    llm = load(n_ctx=256, chat_template=(
        "{{ tools[0].name if tools }}|{{ documents[0].text if documents }}|{{ think }}|"
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ '>' if add_generation_prompt }}"))
    options: dict[str, Any] = {"tools": [{"name": "f"}], "documents": [{"text": "D"}],
                               "chat_template_kwargs": {"think": "T"}}
    assert text_of(llm, HELLO, **options) == "f|D|T|Hello>"
    assert text_of(llm, HELLO, add_generation_prompt=False) == "|||Hello"
    ids = llm.chat_tokens(HELLO, **options)
    assert llm.chat(HELLO, GREEDY, **options).tokens == llm.generate(ids, GREEDY).tokens
    assert "".join(llm.stream_chat(HELLO, GREEDY, **options)) == llm.generate(ids, GREEDY).text


def test_an_answer_is_continued(load: Callable[..., LLM]) -> None:
    """The last message is how it begins; the completion is what follows."""
    llm = load(n_ctx=256)
    messages = [*HELLO, {"role": "assistant", "content": "Hi, "}]
    ids = llm.chat_tokens(messages, continue_final_message=True)
    assert ids[: len(llm.chat_tokens(HELLO))] == llm.chat_tokens(HELLO)
    assert llm.detokenize(ids).endswith("<|im_start|>assistant\nHi, ")
    assert llm.chat(messages, GREEDY, continue_final_message=True).text == llm.generate(ids, GREEDY).text


def test_the_template_can_be_replaced(load: Callable[..., LLM]) -> None:
    """By source, which may name the model's special tokens, by a name, or compiled; a broken one does not load."""
    assert text_of(load(n_ctx=64, chat_template="{{ bos_token }}{{ messages[0].content }}!"), HELLO) == "Hello!"
    assert text_of(load(n_ctx=64, chat_template=ChatTemplate("x{{ bos_token }}")), HELLO) == "x"
    assert text_of(load(n_ctx=64, chat_template="zephyr"), HELLO).startswith("<|user|>\nHello")
    with pytest.raises(TemplateError, match=r"chat_template, line 2: .*endif"):
        load(chat_template="{% if a %}\n{% endfor %}")
    assert len(ReferenceBackend.opened) == 3


def test_messages_that_are_none_are_refused(load: Callable[..., LLM]) -> None:
    """By the name of the argument and the place in it."""
    llm = load(n_ctx=64)
    for messages, message in (("Hello", "messages: expected a list of mappings, found 'Hello'"),
                              ([], "messages: expected a message or more, found none"),
                              ([{"content": "Hello"}], r"messages\[0\] has no role"),
                              ([*HELLO, {"role": "user"}], r"messages\[1\].content is missing: expected a text or"),
                              ([{"role": "user", "content": 5}], r"messages\[0\].content: expected a text or .* 5"),
                              ([{"role": "user", "content": b"x"}], r"messages\[0\].content: expected text, .* bytes")):
        with pytest.raises(TemplateError, match=message):
            llm.chat(messages)      # type: ignore[arg-type]


def test_options_that_there_are_not_are_refused(load: Callable[..., LLM]) -> None:
    """In the name of the method that was called; a field of the parameters is told apart from a slip."""
    llm = load(n_ctx=64)
    options: dict[str, Any] = {"toools": []}
    for method in (llm.chat, llm.stream_chat, llm.chat_tokens):
        error = rf"^LLM\.{method.__name__}\(\) got an unexpected keyword argument 'toools'; did you mean 'tools'\?$"
        with pytest.raises(TypeError, match=error):
            method(HELLO, **options)
    with pytest.raises(TypeError, match=r"'max_tokens'; it is a field: params=SamplingParams\(max_tokens=\.\.\.\)"):
        llm.chat(HELLO, **{"max_tokens": 5})       # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"argument 'x'; there are add_generation_prompt, .*, documents, tools$"):
        llm.chat(HELLO, **{"x": 5})     # type: ignore[arg-type]


def test_tools_that_the_template_leaves_out_are_refused(load: Callable[..., LLM]) -> None:
    """ChatML has no place for them, nor for documents."""
    llm = load(n_ctx=64)
    with pytest.raises(TemplateError, match="tools: this model's template has no tools, so that the model would not"):
        llm.chat(HELLO, tools=[{"type": "function", "function": {"name": "f"}}])
    with pytest.raises(TemplateError, match="documents: this model's template has no documents, so that the model wo"):
        llm.chat(HELLO, documents=[{"text": "D"}])


def test_a_user_cannot_write_control_tokens(load: Callable[..., LLM]) -> None:
    """What a message spells is text to the model; what a prompt spells is a token."""
    llm = load(n_ctx=128, chat_template="{{ messages[0].content }}{{ eos_token }}")
    bos, eos = llm.tokenizer.bos_id, llm.tokenizer.eos_id
    assert bos is not None
    assert eos is not None
    spelled = llm.detokenize([eos])
    assert llm.chat_tokens([{"role": "user", "content": f"a{spelled}b"}]) == [
        bos, *llm.tokenize(f"a{spelled}b", add_special=False), eos]
    assert llm.tokenize(f"a{spelled}b", parse_special=True).count(eos) == 1


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


PAGE = Path(__file__).parents[1] / "docs" / "library.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_documentation_run(tiny: ArchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, with no name that none of them has made, on the tiny model, whatever they call theirs."""
    monkeypatch.setattr(ggpy.llm, "resolve", lambda name: tiny.path)
    monkeypatch.setattr(LLM, "chat_template", ChatTemplate(CHATML + "{{ tools[0].function.name if tools }}"))
    # the answers of a random model have no end
    monkeypatch.setattr(ggpy.llm, "Request", lambda ids, params: Request(ids, replace(params, max_tokens=8)))
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


def test_the_context_is_the_models_cut_to_memory(load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is available may go to keys and values."""
    llm = load()
    trained = llm.metadata.get_int("llama.context_length")
    assert llm.n_ctx == min(trained, 4096)
    monkeypatch.setattr(ggpy.llm, "available_memory_bytes", lambda: 1000)
    assert load().n_ctx == PAGE_TOKENS


def test_a_context_beyond_the_trained_one_is_warned_of(
    load: Callable[..., LLM], tiny: ArchModel, caplog: pytest.LogCaptureFixture
) -> None:
    """With both sizes; it may be what the user wants."""
    trained = hparams_of(GGUFFile(tiny.path)).n_ctx_train
    load(n_ctx=trained)
    assert "trained" not in caplog.text
    assert load(n_ctx=trained + 1).n_ctx == trained + 1
    assert f"the context is {trained + 1:,} tokens, but the model was trained for {trained:,}" in caplog.text


@pytest.mark.parametrize(("options", "message"), [
    ({"compute": "int4"}, "compute='int4': expected one of int8, f32"),
    ({"cache_type_k": "f8"}, "cache_type_k='f8': expected one of f16, q8_0, f32"),
    ({"cache_type_v": 8}, "cache_type_v=8"),
    ({"repack": True}, "repack=True"),
    ({"n_ctx": 1}, "n_ctx=1: expected a whole number of at least 2"),
    ({"n_ctx": 0}, "n_ctx=0"),
    ({"n_ctx": "9"}, "n_ctx='9': expected a whole number"),
    ({"n_threads": 2.5}, r"n_threads=2\.5: expected a whole number of at least 1"),
    ({"n_threads": 0}, "n_threads=0"),
    ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
    ({"n_ctx": 65, "pool_tokens": 64}, "pool_tokens=64: expected a whole number of at least 65"),
])
def test_settings_that_cannot_work_are_refused(
    load: Callable[..., LLM], options: dict[str, Any], message: str
) -> None:
    """Before anything is loaded."""
    with pytest.raises(ConfigError, match=message):
        load(**options)


@pytest.mark.parametrize(("prompt", "message"), [
    ([1, 1.7], r"prompt\[1\]=1\.7: expected a token id, a whole number"),
    (np.ones(3, np.float32), r"prompt\[0\]=.*1.0.*: expected a token id"),
    (["hello"], r"prompt\[0\]='hello': expected a token id"),
    ([[1, 2]], r"prompt\[0\]=\[1, 2\]: expected a token id"),
    (b"hello", "prompt=b'hello': expected a text or a sequence of token ids"),
    (5, "prompt=5: expected a text or a sequence of token ids"),
    (None, "prompt=None: expected a text or a sequence of token ids"),
])
def test_prompts_of_other_types_are_refused(load: Callable[..., LLM], prompt: Any, message: str) -> None:
    """A number that is nearly a token is not rounded to one, and bytes are no list of tokens."""
    with pytest.raises(RequestError, match=message):
        load(n_ctx=64).generate(prompt)


def test_numpys_integers_are_tokens(load: Callable[..., LLM]) -> None:
    """In an array or one by one."""
    llm = load(n_ctx=64)
    expected = llm.generate([5, 6], GREEDY).tokens
    assert llm.generate(np.array([5, 6], np.uint8), GREEDY).tokens == expected
    assert llm.generate([np.int64(5), 6], GREEDY).tokens == expected


def test_other_arguments_of_other_types_are_refused(load: Callable[..., LLM]) -> None:
    """By their name."""
    llm = load(n_ctx=64)
    with pytest.raises(RequestError, match=r"prompt=.*too large to write: expected a text or a sequence of token ids"):
        llm.generate(10**5000)      # type: ignore[arg-type]
    with pytest.raises(RequestError, match="too large to write is not in the vocabulary; expected 0 to"):
        llm.generate([10**5000])
    with pytest.raises(TokenizerError, match="too large to write: expected an id from 0 to"):
        llm.detokenize([10**5000])
    with pytest.raises(RequestError, match=r"params=\{'max_tokens': 3\}: expected a SamplingParams"):
        llm.generate("x", {"max_tokens": 3})    # type: ignore[arg-type]
    with pytest.raises(RequestError, match="text=5: expected a string"):
        llm.tokenize(5)     # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="positions='first': expected one of all, last"):
        llm.logits([1], "first")    # type: ignore[arg-type]
    with pytest.raises(RequestError, match="ids='ab': expected a sequence of token ids"):
        llm.logits("ab")    # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model=None: expected a path"):
        LLM(None)           # type: ignore[arg-type]
    for template in (5, "chatlm"):
        with pytest.raises(ConfigError, match=f"chat_template={template!r}: expected Jinja source, .* one of chatml"):
            load(chat_template=template)


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


def test_the_default_context_fits_the_pool(load: Callable[..., LLM]) -> None:
    """A pool smaller than the model's context shortens it."""
    assert load(pool_tokens=96).n_ctx == 96
    assert load(pool_tokens=10_000).n_ctx == load().n_ctx


def test_the_speed_of_the_prompt_leaves_out_what_was_cached() -> None:
    """100 tokens of which 60 were known took 2 seconds; without a first token nothing was measured."""
    timings = Timings(n_prompt=100, n_generated=5, prompt_s=2.0, generation_s=2.0, n_cached=60)
    assert (timings.prompt_tokens_per_s, timings.tokens_per_s) == (20, 2)
    nothing = Timings(n_prompt=100, n_generated=0, prompt_s=0.0, generation_s=0.0)
    assert (nothing.prompt_tokens_per_s, nothing.tokens_per_s) == (0, 0)


def test_a_completion_says_what_was_cached(load: Callable[..., LLM]) -> None:
    """The same prompt again: all of it but the last token, which gives the logits."""
    llm = load(n_ctx=128)
    llm.generate([7] * 40, GREEDY)
    completion = llm.generate([7] * 40, GREEDY)
    assert (completion.n_prompt, completion.n_cached, completion.timings.n_cached) == (40, 39, 39)


def test_a_completion_says_its_seed(load: Callable[..., LLM]) -> None:
    """Drawn where none was given; with it the answer comes again."""
    llm = load(n_ctx=128)
    first = llm.generate([7] * 4, SamplingParams(max_tokens=12, temperature=2, ignore_eos=True))
    again = llm.generate([7] * 4, SamplingParams(max_tokens=12, temperature=2, ignore_eos=True, seed=first.seed))
    assert (again.tokens, again.seed) == (first.tokens, first.seed)
    assert llm.generate([7] * 4, SamplingParams(max_tokens=1)).seed != first.seed


def test_a_name_that_no_model_has_is_refused(tmp_path: Path) -> None:
    """As is a file that is not there."""
    with pytest.raises(PullError, match="no model is called 'smolm2'"):
        LLM("smolm2")
    with pytest.raises(PullError, match="there is no such file"):
        LLM(tmp_path / "model.gguf")


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
    """The mean over a text's tokens or the last one's state, of length 1 unless asked otherwise."""
    from ggpy.gguf import GGUFFile
    from ggpy.models import build_model

    llm = load()
    hidden = evaluate(build_model(GGUFFile(tiny.path)).graph, llm.tokenize("the cat"))["hidden"]
    assert np.allclose(llm.embed(["the cat"], normalize=False), hidden.mean(axis=0), atol=1e-5)
    assert np.allclose(llm.embed(["the cat"], pooling="last", normalize=False), hidden[-1], atol=1e-5)
    vectors = llm.embed(["the cat", "and in the sea"])
    assert vectors.shape == (2, llm.n_embd)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert llm.embed([]).shape == (0, llm.n_embd)
    with pytest.raises(ConfigError, match="pooling='sum': expected one of mean, last"):
        llm.embed(["a"], pooling="sum")    # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"texts='text': expected a list of strings; give a single one as \[text\]"):
        llm.embed("text")
    with pytest.raises(RequestError, match="texts=5: expected a list of strings"):
        llm.embed(5)            # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"texts\[1\]=\[5\]: expected a string"):
        llm.embed(["a", [5]])   # type: ignore[list-item]
