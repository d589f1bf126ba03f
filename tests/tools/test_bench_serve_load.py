"""How a plan is sent: clients, times, turns that wait for answers; and the targets that it is sent to."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from ggpy.engine.thread_client import ThreadClient
from ggpy.errors import GgpyError
from ggpy.gguf import GGUFFile
from ggpy.loading import ModelOptions, load_core
from ggpy.text import Tokenizer
from ggpy.tools.bench_serve_bound import bound
from ggpy.tools.bench_serve_engine import Engine
from ggpy.tools.bench_serve_load import Record, run_closed, run_open
from ggpy.tools.bench_serve_plan import PlannedRequest, expected_prompts
from ggpy.tools.bench_serve_targets import Answer, LlamaServer, OpenAIServer, Server
from ggpy.tools.bench_serve_workloads import Size, agent, chat
from tests.models.arch_data import ArchModel

WORDS = range(4096)         # each symbol is its own token


class FakeTarget:
    """Answers with tokens from 5000 up as soon as others have had a turn; notes who is at work at the same time."""

    name = "fake"
    lacks: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.prompts: list[Sequence[int]] = []
        self.n_busy = self.most_busy = 0

    async def words(self) -> list[int]:
        return list(WORDS)

    async def n_ctx(self) -> int | None:
        return None

    async def n_preempted(self) -> int | None:
        return None

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        self.prompts.append(prompt)
        self.n_busy += 1
        self.most_busy = max(self.most_busy, self.n_busy)
        for _ in range(n_output):
            await asyncio.sleep(0)
        self.n_busy -= 1
        now = time.perf_counter()
        return Answer(list(range(5000, 5000 + n_output)), n_output, [now] * n_output, 0)


def request(symbol: int, session: int, parent: int | None = None, arrival_s: float = 0.0) -> PlannedRequest:
    return PlannedRequest(np.array([symbol], np.int32), 2, session, parent, arrival_s)


def test_a_turn_has_the_answer_that_really_came() -> None:
    """The prompt of a parent, its answer, and what is added; of a fork, too."""
    target = FakeTarget()
    plan = [request(1, 0), request(2, 0, parent=0), request(3, 1, parent=0)]
    records = asyncio.run(run_closed(plan, target, WORDS, 1))
    assert target.prompts == [[1], [1, 5000, 5001, 2], [1, 5000, 5001, 3]]
    assert [r.prompt for r in records] == target.prompts


@pytest.mark.parametrize("n_clients", [1, 3, 8])
def test_clients_are_busy_and_no_more_than_there_are(n_clients: int) -> None:
    """Sessions are taken one after the other; all requests are sent, forks included."""
    target = FakeTarget()
    plan = agent(Size(20, scale=0.05))
    assert len(asyncio.run(run_closed(plan, target, WORDS, n_clients))) == len(plan)
    assert target.most_busy == n_clients


def test_open_load_follows_the_plan_and_waits_for_parents() -> None:
    """The clock is scaled: what would take 500 s takes half a second."""
    target = FakeTarget()
    plan = [request(1, 0), request(2, 0, parent=0), request(3, 1, arrival_s=100), request(4, 2, arrival_s=500)]
    records = asyncio.run(run_open(plan, target, WORDS, time_scale=0.001))
    assert [r.prompt[-1] for r in records] == [1, 2, 3, 4]
    assert records[1].due_s >= records[0].end_s
    assert records[3].due_s - records[0].due_s == pytest.approx(0.5)
    assert records[3].end_s >= records[3].due_s


def test_progress_is_told_of_every_end() -> None:
    """The number of requests that have ended, and of all."""
    told: list[tuple[int, int]] = []
    asyncio.run(run_closed(chat(Size(3, 0.01)), FakeTarget(), WORDS, 2, lambda *counts: told.append(counts)))
    assert told == [(1, 3), (2, 3), (3, 3)]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(**handlers: Handler) -> AsyncIterator[str]:
    """The URL of a server with handlers by path, "_" for "/"."""
    app = web.Application()
    for name, handler in handlers.items():
        app.router.add_route("*", "/" + name.replace("_", "/"), handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def sending(*lines: str, status: int = 200, seen: list[Any] | None = None) -> Handler:
    """A handler that answers with a stream of `lines`, or with an error, and keeps the bodies it got in `seen`."""
    async def handle(request: web.Request) -> web.StreamResponse:
        if seen is not None:
            seen.append(await request.json())
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for line in lines:
            await reply.write(f"{line}\n\n".encode())
        return reply

    return handle


async def answer_of(kind: type[Server], **handlers: Handler) -> Answer:
    async with serving(**handlers) as url, kind(url) as target:
        return await target.complete([3, 4, 5], 2)


def test_llama_server_is_asked_and_understood() -> None:
    """Token ids in and out, comments ignored, cached tokens from the timings of the last event."""
    seen: list[Any] = []
    answer = asyncio.run(answer_of(LlamaServer, completion=sending(
        'data: {"content": "a", "tokens": [7], "stop": false}', ":",
        'data: {"content": "b", "tokens": [8, 9], "stop": false}',
        'data: {"timings": {"cache_n": 2, "prompt_n": 1}, "stop": true}', seen=seen)))
    assert (answer.tokens, answer.n_tokens, len(answer.times_s), answer.n_cached) == ([7, 8, 9], 3, 2, 2)
    assert answer.problem == ""
    assert {"prompt": [3, 4, 5], "n_predict": 2, "ignore_eos": True, "stream": True, "temperature": 0.0,
            "cache_prompt": True}.items() <= seen[0].items()


def test_an_openai_server_is_asked_and_understood() -> None:
    """It tells how many tokens there were in the usage alone."""
    seen: list[Any] = []
    answer = asyncio.run(answer_of(OpenAIServer, v1_completions=sending(
        'data: {"choices": [{"text": "a", "finish_reason": null}]}',
        'data: {"choices": [{"text": "bc", "finish_reason": null}]}',
        'data: {"choices": [{"text": "", "finish_reason": "length"}]}',
        'data: {"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}}',
        "data: [DONE]", seen=seen)))
    assert (answer.tokens, answer.n_tokens, len(answer.times_s), answer.n_cached) == ([], 3, 2, 2)
    assert (seen[0]["max_tokens"], seen[0]["prompt"]) == (2, [3, 4, 5])


@pytest.mark.parametrize(("handler", "problem", "message"), [
    (sending(status=503), "rejected", "HTTP 503"),
    (sending(status=400), "failed", "HTTP 400"),
    (sending('data: {"error": {"message": "Context size has been exceeded."}}'), "failed", "Context size"),
    (sending("data: nonsense"), "failed", "JSONDecodeError"),
    (sending("data: []"), "failed", "expected a JSON object"),
])
def test_what_goes_wrong_is_part_of_the_answer(handler: Handler, problem: str, message: str) -> None:
    """Nothing is raised, so the other requests go on."""
    answer = asyncio.run(answer_of(LlamaServer, completion=handler))
    assert answer.problem == problem
    assert message in answer.message


def test_a_server_that_is_not_there_fails_the_request() -> None:
    """And what must be known before the run is an error with the address."""
    async def ask() -> Answer:
        async with LlamaServer("http://127.0.0.1:9") as target:
            with pytest.raises(GgpyError, match=r"http://127\.0\.0\.1:9/tokenize: nobody listens there"):
                await target.words()
            assert await target.n_ctx() is None
            return await target.complete([1], 1)

    assert asyncio.run(ask()).problem == "failed"


def test_what_a_server_tells_about_itself() -> None:
    """Its context, the tokens of words, and a counter of preemptions if it has one."""
    async def props(request: web.Request) -> web.Response:
        return web.json_response({"default_generation_settings": {"n_ctx": 512}})

    async def tokenize(request: web.Request) -> web.Response:
        assert (await request.json())["content"].startswith("the of and")
        return web.json_response({"tokens": [8, 7, 8, 9]})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="# TYPE x_preemptions counter\nx_preemptions_total 3.0\nother_total 9.0\n")

    async def ask() -> None:
        async with serving(props=props, tokenize=tokenize, metrics=metrics) as url, LlamaServer(url) as target:
            assert await target.n_ctx() == 512
            assert await target.n_preempted() == 3
            assert await target.words() == [8, 7, 9]
        async with serving() as url, LlamaServer(url) as target:
            assert await target.n_preempted() is None

    asyncio.run(ask())


@asynccontextmanager
async def engine(arch_model: Callable[[str], ArchModel], **options: int) -> AsyncIterator[Engine]:
    """The target of a tiny model, in a thread."""
    path = arch_model("llama_headdim").path
    core = load_core(path, ModelOptions(n_ctx=options["n_ctx"], pool_tokens=options.get("pool_tokens")))
    async with ThreadClient(core) as client:
        yield Engine(client, Tokenizer.from_metadata(GGUFFile(path).metadata))


def test_an_engine_is_a_target(arch_model: Callable[[str], ArchModel]) -> None:
    """Agents on a tiny model: every answer has its length, and hits stay below what an ideal cache has."""
    async def run() -> list[Record]:
        async with engine(arch_model, n_ctx=256, pool_tokens=1024) as target:
            assert await target.n_ctx() == 256
            return await run_closed(plan, target, await target.words(), 3)

    plan = agent(Size(3, scale=0.02))
    assert max(map(len, expected_prompts(plan))) < 250
    records = asyncio.run(run())
    assert len(records) == len(plan)
    assert all(r.is_ok and len(r.answer.times_s) == r.answer.n_tokens for r in records)
    assert sorted(r.answer.n_tokens for r in records) == sorted(r.n_output for r in plan)
    cached = sum(r.answer.n_cached or 0 for r in records)
    assert 0 < cached <= bound(r.access for r in records).n_cached


def test_who_cancels_an_answer_keeps_what_came(arch_model: Callable[[str], ArchModel]) -> None:
    """And the engine goes on with the next request."""
    async def ask() -> tuple[Answer, Answer]:
        async with engine(arch_model, n_ctx=256) as target:
            answer = Answer()
            task = asyncio.create_task(target.complete([1, 2], 250, answer))
            while not answer.n_tokens:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return answer, await target.complete([1, 2], 2)

    cancelled, good = asyncio.run(ask())
    assert 0 < cancelled.n_tokens < 250
    assert good.n_tokens == 2


def test_a_request_that_the_engine_refuses_fails_alone(arch_model: Callable[[str], ArchModel]) -> None:
    """A prompt that does not fit its context."""
    async def ask() -> tuple[Answer, Answer]:
        async with engine(arch_model, n_ctx=64) as target:
            return await target.complete([1] * 100, 2), await target.complete([1, 2], 2)

    refused, good = asyncio.run(ask())
    assert refused.problem == "failed"
    assert "the prompt has 100 tokens" in refused.message
    assert good.n_tokens == 2
