"""Random workloads on tiny models under random settings, and a check that each request ends as if it were alone."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, Backend, Repack, StepSequence
from ggpy.engine.config import EngineConfig, SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.core import EngineCore
from ggpy.engine.messages import Generate
from ggpy.engine.pages import pages_for, pool_pages
from ggpy.engine.request import Event, Request
from ggpy.engine.service import requests_of
from ggpy.engine.speculation import SpeculationConfig, Speculator
from ggpy.gguf import GGUFFile
from ggpy.text import Tokenizer
from tests.backends.steps import cpu
from tests.models.arch_data import ArchModel

N_CTX = 6 * PAGE_TOKENS
MODELS = ("llama_q8_0", "gemma3", "gpt-oss", "qwen2moe", "olmo2_swa")      # three have windows, of 16 tokens
MAX_STEPS = 20_000

Drafts = Literal["none", "learnt", "told"]
Rows = dict[int, bytes]         # position of a token -> digest of the logits of the next one


@dataclass(frozen=True)
class Settings:
    """How an engine runs; nothing of it may change a bit."""

    max_running: int
    max_batch_tokens: int
    max_outputs: int
    step_ms: float
    n_threads: int
    pool_tokens: int
    repack: Repack
    drafts: Drafts
    cache_audit: int


@dataclass(frozen=True)
class Arrival:
    """Requests that come together at a step of the engine, and leave at another if they are still there."""

    step: int
    command: Generate
    leaves: int | None


@dataclass(frozen=True)
class Answer:
    """What a request gets when it is alone."""

    tokens: list[int]
    text: str
    finish_reason: str | None
    rows: Rows


@dataclass
class Outcome:
    """What a workload met with, counted, and where a request did not get what it gets alone."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class Recorder:
    """A backend that keeps digests of the logits of requests' output rows, and checks the budget of each step."""

    def __init__(self, backend: Backend) -> None:
        self.rows: dict[int, list[tuple[int, list[int], bytes]]] = {}   # by request: position, tokens up to it, digest
        self.core: EngineCore | None = None
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        assert self.core is not None
        assert sum(len(s.tokens) for s in sequences) <= self.core.scheduler.max_batch_tokens
        assert sum(s.n_outputs for s in sequences) <= self._backend.max_outputs
        logits = self._backend.forward(sequences)
        owners = {id(r.kv.page_table): r for r in self.core.scheduler.running if r.kv is not None}
        row = 0
        for s in sequences:
            owner = owners.get(id(s.page_table))
            for n in range(len(s.tokens) - s.n_outputs + 1, len(s.tokens) + 1):
                if owner is not None:
                    tokens = [*owner.tokens[: s.first_position], *s.tokens[:n]]
                    digest = hashlib.blake2b(logits[row].tobytes(), digest_size=16).digest()
                    self.rows.setdefault(owner.id, []).append((len(tokens) - 1, tokens, digest))
                row += 1
        return logits

    def rows_of(self, request: Request) -> Rows:
        """Those that follow tokens of the request, and no wrong drafts."""
        return {position: digest for position, tokens, digest in self.rows.get(request.id, ())
                if tokens == request.tokens[: position + 1]}


class Teller:
    """Drafts what requests will say, as they say it alone, but with mistakes."""

    def __init__(self, answers: dict[int, list[int]], seed: int) -> None:
        self._answers, self._random = answers, random.Random(seed)

    def draft(self, requests: Sequence[Request]) -> None:
        for r in requests:
            rest = self._answers[r.id][r.num_generated :][: self._random.randrange(6)]
            r.draft_tokens = tuple((t + 1) % 256 if self._random.random() < 0.2 else t for t in rest)

    def reset(self) -> None:
        pass

    def saw(self, request: Request, n_drafted: int, n_accepted: int, step_s: float | None) -> None:
        pass

    def finished(self, request: Request) -> None:
        pass


class Workloads:
    """Workloads on one tiny model; `alone` answers its requests one by one, computing each anew."""

    def __init__(self, model: ArchModel, alone: Backend) -> None:
        self.model = model
        self.tokenizer = Tokenizer.from_metadata(GGUFFile(model.path).metadata)
        self._recorder = Recorder(alone)
        config = EngineConfig(n_ctx=N_CTX, max_batch_tokens=alone.max_tokens, step_ms=0)
        self.alone = self._core(self._recorder, config)
        self._n_alone = 0

    def run(self, seed: int) -> Outcome:
        """One workload, and what became of it."""
        rng = random.Random(f"{self.model.name} {seed}")
        settings, arrivals = random_settings(rng), random_arrivals(rng)
        outcome = Outcome()
        live = [(arrival, request) for arrival in arrivals for request in requests_of(arrival.command)]
        answers = {request.id: self._answer(request) for _, request in live}
        with cpu(self.model, n_threads=settings.n_threads, max_tokens=settings.max_batch_tokens,
                 max_outputs=settings.max_outputs, table_pages=pages_for(N_CTX), repack=settings.repack,
                 n_pages=pool_pages(self._recorder.kv_groups, settings.pool_tokens,
                                    settings.max_batch_tokens)) as backend:
            recorder = Recorder(backend)
            core = self._core(recorder, EngineConfig(
                n_ctx=N_CTX, max_batch_tokens=settings.max_batch_tokens, max_running=settings.max_running,
                step_ms=settings.step_ms, cache_audit=settings.cache_audit), self._speculator(settings, answers, seed))
            events = serve(core, live)
        for _, request in live:
            found = differences(request, events[request.id], recorder.rows_of(request), answers[request.id])
            outcome.differences += [f"{self.model.name}, workload {seed}, {settings}: {text}" for text in found]
        if n := core.metrics.n_audit_differences:
            outcome.differences.append(f"{self.model.name}, workload {seed}, {settings}: audits found {n} differences")
        outcome.counts.update(counts_of(core, settings, [request for _, request in live]))
        return outcome

    def _answer(self, request: Request) -> Answer:
        """What `request` gets when nobody else is there and nothing is cached."""
        self._n_alone += 1
        alone = Request(request.prompt_tokens, request.params, constraint=request.constraint, salt=-1 - self._n_alone)
        events = serve(self.alone, [(Arrival(0, Generate(prompt_tokens=()), None), alone)])[alone.id]
        rows = self._recorder.rows_of(alone)
        self._recorder.rows.clear()
        return Answer(alone.output_tokens, text_of(events), alone.finish_reason, rows)

    def _core(self, recorder: Recorder, config: EngineConfig, speculator: Speculator | None = None) -> EngineCore:
        core = recorder.core = EngineCore(cast(Backend, recorder), self.tokenizer, config, speculator)
        return core

    def _speculator(self, settings: Settings, answers: dict[int, Answer], seed: int) -> Speculator | None:
        if settings.drafts == "learnt":
            return Speculator(SpeculationConfig(), n_vocab=self._recorder.n_vocab, n_ctx=N_CTX,
                              max_rows=settings.max_outputs)
        if settings.drafts == "told":
            return cast(Speculator, Teller({i: answer.tokens for i, answer in answers.items()}, seed))
        return None


@contextmanager
def workloads(model: ArchModel) -> Iterator[Workloads]:
    """Workloads on `model`."""
    with cpu(model, n_threads=1, n_pages=3 * pages_for(N_CTX), table_pages=pages_for(N_CTX), max_tokens=N_CTX,
             max_outputs=1) as alone:
        yield Workloads(model, alone)


def serve(core: EngineCore, live: Sequence[tuple[Arrival, Request]]) -> dict[int, list[Event]]:
    """Run until all is done; the events of each request."""
    events: dict[int, list[Event]] = {request.id: [] for _, request in live}
    last = max(arrival.step for arrival, _ in live)
    for now in range(MAX_STEPS):
        for arrival, request in live:
            if arrival.step == now:
                core.add(core.prepare(request))
            elif arrival.leaves == now:
                core.cancel(request.id)
        for event in core.step():
            events[event.request_id].append(event)
        if now >= last and not core.has_work:
            break
    cache = core.cache
    assert not [*core._live, *core.scheduler.running, *core.scheduler.waiting], "requests that have ended"
    assert not getattr(core.speculator, "_tracks", None), "what was learnt of requests that have ended"
    assert not any(cache.n_held), "pages of nobody"
    assert [free + idle for free, idle in zip(cache.n_free, cache.n_idle, strict=True)] == [*cache.n_pages]
    return events


def differences(request: Request, events: Sequence[Event], rows: Rows, alone: Answer) -> list[str]:
    """What `request` got that it does not get alone, or the other way round."""
    name, n = f"request {request.id}", request.num_generated
    tokens, reason = request.output_tokens, request.finish_reason
    found = []
    if reason in ("cancelled", "error"):
        if tokens != alone.tokens[:n]:
            found.append(f"{name} got {tokens} and would have got {alone.tokens} alone")
    elif (tokens, reason, text_of(events)) != (alone.tokens, alone.finish_reason, alone.text):
        found.append(f"{name} got {tokens}, {reason}, {text_of(events)!r}, alone {alone}")
    if [token for event in events for token in event.tokens] != tokens and reason != "cancelled":
        found.append(f"{name} was told of other tokens than it got")
    first = len(request.prompt_tokens) - 1
    if missing := [position for position in range(first, first + n) if position not in rows]:
        found.append(f"{name}: no logits at {missing}")
    if wrong := [position for position, row in rows.items() if row != alone.rows.get(position, row)]:
        found.append(f"{name}: other logits at {wrong}")
    return found


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events)


def counts_of(core: EngineCore, settings: Settings, requests: Sequence[Request]) -> Counter[str]:
    """What a workload covered."""
    demand = sum(pages_for(len(r.tokens)) for r in requests)
    return Counter({
        "workloads": 1, "requests": len(requests), "tokens": sum(r.num_generated for r in requests),
        "hits": sum(bool(r.num_cached) for r in requests), "preempted": core.scheduler.num_preempted,
        "audits": core.metrics.n_audits,
        "drafted": sum(r.num_drafted for r in requests), "accepted": sum(r.num_accepted for r in requests),
        "constrained": sum(r.constraint is not None for r in requests),
        "cancelled": sum(r.finish_reason == "cancelled" for r in requests),
        "stopped": sum(r.finish_reason == "stop" for r in requests),
        "demand_over_200%": demand >= 2 * core.cache.n_pages[0], "one_at_a_time": settings.max_running == 1,
        "windows": len(core.cache.windows) > 1,
    })


def random_settings(rng: random.Random) -> Settings:
    max_running = rng.choice((1, 2, 8, 8, 8))
    max_batch_tokens = rng.choice((max_running, 16, 24, 64, 192))
    max_batch_tokens = max(max_batch_tokens, max_running)
    return Settings(
        max_running=max_running, max_batch_tokens=max_batch_tokens,
        max_outputs=min(max_batch_tokens, rng.choice((max_running, 16, 32))), step_ms=rng.choice((0, 0.1, 1, 85)),
        n_threads=rng.randrange(1, 4), pool_tokens=rng.choice((2, 2, 3, 12)) * N_CTX // 2,
        repack=rng.choice(("on", "off")), drafts=rng.choice(("none", "learnt", "told", "told")),
        cache_audit=rng.choice((0, 1)))


def random_arrivals(rng: random.Random) -> list[Arrival]:
    """Requests whose prompts begin like others, edit or continue them; a third of the workloads share nothing."""
    seen = [random_tokens(rng, rng.randrange(20, 100)) for _ in range(2)]
    shares, arrivals, step = rng.random() < 0.67, [], 0
    for i in range(rng.randrange(4, 10)):
        prompt = random_prompt(rng, seen)
        seen.append(prompt)
        command = random_command(rng, 100 * i, prompt, salt=rng.randrange(4) // 3 if shares else 1 + i)
        arrivals.append(Arrival(step, command, step + rng.randrange(60) if rng.random() < 0.1 else None))
        step += rng.choice((0, 0, 1, 3, 20))
    return arrivals


def random_tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(256) for _ in range(n)]


def random_prompt(rng: random.Random, seen: Sequence[list[int]]) -> list[int]:
    kind, base = rng.choice(("new", "same", "fork", "fork", "edit", "longer")), list(rng.choice(seen))
    if kind == "new":
        base = []
    elif kind == "fork":
        base = base[: rng.randrange(1, len(base) + 1)]
    elif kind == "edit":
        base[rng.randrange(len(base))] = rng.randrange(256)
    tail = [] if kind in ("same", "edit") else random_tokens(rng, rng.randrange(1, 50))
    return [*base, *tail][: N_CTX - 30]


def random_command(rng: random.Random, first_id: int, prompt: list[int], salt: int) -> Generate:
    params = SamplingParams(temperature=0) if rng.random() < 0.5 else SamplingParams(
        temperature=rng.choice((0.7, 1.5)), top_k=rng.choice((0, 40)))
    if rng.random() < 0.3:
        params = replace(params, repeat_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.1)
    if rng.random() < 0.2:
        params = replace(params, stop=("a", "e", "o", "th", "is"))
    params = replace(params, seed=rng.randrange(1000), max_tokens=rng.randrange(1, 70),
                     ignore_eos=rng.random() < 0.5)
    constraint = rng.choice((ConstraintSpec("regex", "[a-z ]{1,60}"), ConstraintSpec("json")))
    return Generate(id=first_id, prompt_tokens=prompt, params=params, n=rng.choice((1, 1, 1, 1, 2, 3)),
                    constraint=constraint if rng.random() < 0.2 else None, priority=rng.choice((0, 0, 0, 1, -1)),
                    salt=salt)
