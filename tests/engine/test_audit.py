"""An audit finds what a cache holds that computing it again would not give, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ggpy.backends.base import StepSequence
from ggpy.backends.cpu import CpuBackend
from ggpy.engine.audit import Difference, audit, audit_stored
from ggpy.engine.config import EngineConfig, SamplingParams
from ggpy.engine.core import EngineCore
from ggpy.engine.kv_cache import KVCache, SequenceKV
from ggpy.engine.request import Event, Request
from ggpy.text import Tokenizer
from tests.backends.steps import cpu
from tests.engine.conftest import LetterTokenizer
from tests.engine.sharing import Sharing
from tests.models.arch_data import ArchModel

TOKENS = [*range(3, 103)]       # three pages and four tokens


@pytest.fixture(scope="module")
def backend(arch_model: Callable[[str], ArchModel]) -> Iterator[CpuBackend]:
    """Layers of full attention and layers with a window of 16."""
    with cpu(arch_model("gemma3"), n_pages=(12, 10), table_pages=8, max_tokens=24) as backend:
        yield backend


@pytest.fixture
def cache(backend: CpuBackend) -> KVCache:
    """Two prompts have been computed, which have 70 tokens in common."""
    cache = KVCache([group.window for group in backend.kv_groups], backend.n_pages, backend.table_pages,
                    backend.copy_page)
    for tokens in (TOKENS, [*TOKENS[:70], *range(200, 220)]):
        compute(backend, cache, cache.open(tokens), tokens)
    return cache


def compute(backend: CpuBackend, cache: KVCache, kv: SequenceKV, tokens: list[int]) -> None:
    """Compute what is missing of `tokens`, in steps of up to 24 rows, and close."""
    while kv.num_computed < len(tokens):
        start, end = kv.num_computed, min(kv.num_computed + 24, len(tokens))
        assert cache.reserve(kv, end)
        backend.forward([StepSequence(tokens[start:end], start, kv.page_table, 1)])
        cache.advance(kv, tokens, end)
    cache.close(kv)


def spoil(backend: CpuBackend, group: int, page: int) -> None:
    """Change all of a page in the least."""
    backend.write_page(group, page, bytes(byte ^ 1 for byte in backend.read_page(group, page)))


def test_what_is_reused_is_what_would_be_computed(backend: CpuBackend, cache: KVCache) -> None:
    """Shared pages, a copied one, and a window."""
    prompt = [*TOKENS[:75], 9]
    kv = cache.open(prompt)
    assert kv.num_cached == 75
    before = (cache.n_held, [*cache.paths()])
    assert audit(backend, cache, kv, prompt) == []
    assert (cache.n_held, [*cache.paths()]) == before


def test_all_that_is_stored_can_be_audited(backend: CpuBackend, cache: KVCache) -> None:
    """Both prompts, whole."""
    audited = audit_stored(backend, cache)
    assert sorted(map(len, audited)) == [90, 100]
    assert [*audited.values()] == [[], []]


def test_a_full_page_that_differs_is_found(backend: CpuBackend, cache: KVCache) -> None:
    """It is named by group and position, and so are the logits that follow."""
    prompt = [*TOKENS[:75], 9]
    kv = cache.open(prompt)
    spoil(backend, 0, kv.page_table[0, 1])
    assert audit(backend, cache, kv, prompt) == [Difference(32, 0), Difference(75, None)]
    assert str(Difference(32, 0)) == "the page of positions 32 and on in KV group 0"


@pytest.mark.parametrize("group", [0, 1])
def test_a_partly_filled_page_that_differs_is_found(backend: CpuBackend, cache: KVCache, group: int) -> None:
    """By the logits of the next token, which reads it."""
    prompt = [*TOKENS[:75], 9]
    kv = cache.open(prompt)
    spoil(backend, group, kv.page_table[group, 2])
    assert audit(backend, cache, kv, prompt) == [Difference(75, None)]


def test_without_pages_nothing_is_audited(backend: CpuBackend, cache: KVCache) -> None:
    """A request needs them more."""
    prompt = [*TOKENS[:75], 9]
    kv, other = cache.open(prompt), cache.open([250])
    assert cache.reserve(other, 8 * 32)
    assert audit(backend, cache, kv, prompt) is None
    assert cache.n_held == (3 + 8, 2 + 8)


@pytest.mark.parametrize("name", ["gemma3", "llama_q8_0"])
def test_nothing_that_many_requests_share_differs(name: str, arch_model: Callable[[str], ArchModel]) -> None:
    """500 requests in pools for two or three of them: whatever they reuse is what they would have computed."""
    with cpu(arch_model(name), n_pages=16, table_pages=8, max_tokens=96, max_outputs=1) as backend:
        sharing = Sharing(backend, backend.n_vocab, seed=0)
        sharing.run(500)
    assert sharing.differences == []
    assert sharing.counts["hits"] > 100
    assert sharing.counts["audits"] > 100
    assert sharing.counts["preempted"] > 10


def read(backend: CpuBackend, cache_audit: int = 1) -> tuple[EngineCore, Callable[..., list[list[Event]]]]:
    """An engine that audits, and a function that answers requests and returns the events of each step."""
    tokenizer = cast(Tokenizer, LetterTokenizer())
    core = EngineCore(backend, tokenizer, EngineConfig(n_ctx=200, max_batch_tokens=24, cache_audit=cache_audit))

    def answer(*requests: Request) -> list[list[Event]]:
        for each in requests:
            core.add(core.prepare(each))
        steps = []
        while core.has_work:
            steps.append(core.step())
        return steps

    return core, answer


def asked(tokens: list[int], max_tokens: int = 1) -> Request:
    return Request(tokens, SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens))


@pytest.mark.parametrize(("every", "n_audits"), [(0, 0), (1, 3), (2, 1), (3, 1)])
def test_one_in_so_many_hits_is_audited(backend: CpuBackend, every: int, n_audits: int) -> None:
    """Three of four requests find something; audits end although nobody asks for anything any more."""
    core, answer = read(backend, every)
    for tokens in (TOKENS, [*TOKENS[:70], 5], [*TOKENS[:33], 6], TOKENS):
        answer(asked(tokens))
    assert (core.metrics.n_audits, core.metrics.n_audit_differences) == (n_audits, 0)
    assert not any(core.cache.n_held)


def test_answers_go_on_while_a_hit_is_audited(backend: CpuBackend) -> None:
    """The audit reads 75 tokens again in four steps, and each of these steps brings a token."""
    core, answer = read(backend)
    answer(asked(TOKENS))
    steps = answer(asked([*TOKENS[:75], 9], max_tokens=8))
    assert [[len(event.tokens) for event in events] for events in steps] == [[1]] * 8
    assert core.metrics.n_audits == 1


def test_a_difference_is_an_error_in_the_log_and_a_count(
    backend: CpuBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """The request that met it goes on: it cannot know better."""
    core, answer = read(backend)
    answer(asked(TOKENS))
    kv = core.cache.open(TOKENS)
    spoil(backend, 0, kv.page_table[0, 1])
    core.cache.close(kv)
    again = asked([*TOKENS[:75], 9])
    answer(again)
    assert again.finish_reason == "length"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "the page of positions 32 and on in KV group 0; this is a bug of ggpy" in caplog.text
    assert (core.metrics.n_audits, core.metrics.n_audit_differences) == (1, 2)


def test_an_audit_gives_its_pages_to_requests(make_driver: Callable[..., Any]) -> None:
    """It ends without a result where they are short, rather than anybody waiting or giving way."""
    driver = make_driver(n_pages=8, n_ctx=256, max_batch_tokens=16, cache_audit=1)
    long = [*range(50), *range(50)]
    driver.run(asked(long))
    driver.add(asked([*long, 1]))
    driver.step()
    assert driver.core.has_work
    driver.run(asked([7] * 200))
    assert driver.core.metrics.n_audits == 0
    assert driver.core.scheduler.num_preempted == 0
