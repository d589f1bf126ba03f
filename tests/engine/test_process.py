"""The engine in a process or a thread of its own: answers, cancelling, crashes, the end of either side."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from ggpy.engine import async_client
from ggpy.engine.async_client import AsyncClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.messages import Generate, Progress, Tokens
from ggpy.engine.process_client import ProcessClient
from ggpy.engine.service import requests_of
from ggpy.engine.thread_client import ThreadClient
from ggpy.engine.transport import ChildPipes, ParentPipes
from ggpy.errors import (
    DeadlineError,
    EngineError,
    GgpyError,
    GGUFError,
    PromptTooLongError,
    RequestError,
    SavedStateError,
)
from ggpy.loading import ModelOptions, load_core
from ggpy.text import ModelText
from tests.engine.conftest import whole
from tests.engine.engines import N_CTX, load_broken, load_dying, load_hashed, load_missing

Client = TypeVar("Client", bound=AsyncClient)
ENDLESS = N_CTX - 10
ROOT = Path(__file__).parents[2]

Start = Callable[..., Awaitable[AsyncClient]]
STARTS: dict[str, Start] = {"thread": ThreadClient.start, "process": ProcessClient.start}


@pytest.fixture(params=STARTS)
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a client of each kind."""
    return STARTS[request.param]


@asynccontextmanager
async def hashed(start: Callable[..., Awaitable[Client]]) -> AsyncIterator[Client]:
    """A client of the fake engine, that is closed at the end."""
    client = await start(load_hashed)
    async with client:
        yield client
        await client.aclose("cancel")


def job(n_prompt: int = 5, max_tokens: int = 4, **options: Any) -> Generate:
    """Greedy and without an end of its own."""
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens)
    return Generate(prompt_tokens=[i % 60 for i in range(n_prompt)], params=params, **options)


async def events_of(client: AsyncClient, job: Generate) -> list[Tokens]:
    return [event async for event in client.generate(job)]


async def tokens_of(client: AsyncClient, job: Generate) -> list[int]:
    return [token for event in await events_of(client, job) for token in event.tokens]


def expected_tokens(n_prompt: int, max_tokens: int) -> list[int]:
    """The answer of an engine in this process."""
    async def ask() -> list[int]:
        async with hashed(ThreadClient.start) as client:
            return await tokens_of(client, job(n_prompt, max_tokens))

    return asyncio.run(ask())


def test_many_streams_at_once_get_the_answers_they_would_get_alone(start: Start) -> None:
    """More than the engine runs at a time."""
    lengths = [3 + 7 * i % 50 for i in range(24)]
    expected = [expected_tokens(n, 20) for n in lengths]

    async def ask() -> list[list[int]]:
        async with hashed(start) as client:
            return await asyncio.gather(*(tokens_of(client, job(n, 20)) for n in lengths))

    assert asyncio.run(ask()) == expected


def test_processes_that_have_no_unix_sockets_meet_on_a_port() -> None:
    """With the same answers."""
    async def ask() -> list[int]:
        async with hashed(partial(ProcessClient.start, use_tcp=True)) as client:
            return await tokens_of(client, job(5, 4))

    assert asyncio.run(ask()) == expected_tokens(5, 4)


def test_a_port_turns_away_who_does_not_know_the_secret() -> None:
    """It reads nothing of what is sent, and what it sends arrives nowhere."""
    parent = ParentPipes(use_tcp=True)
    stranger = ChildPipes(replace(parent.addresses, secret="wrong"))
    stranger.send(b"hello")
    child = ChildPipes(parent.addresses)
    child.send(b"first")
    assert parent.receive() == b"first"
    parent.send(b"for the child")
    assert child.receive() == b"for the child"
    parent.say_ended()
    assert parent.receive() is None
    stranger.flush(0)
    child.flush()
    parent.close()


def test_events_say_what_each_step_brought(start: Start) -> None:
    """Tokens, their letters, the end and how much of the prompt was there already."""
    async def ask() -> tuple[list[Tokens], list[Tokens]]:
        async with hashed(start) as client:
            return await events_of(client, job(40, 3)), await events_of(client, job(40, 3))

    first, again = asyncio.run(ask())
    assert [event.finish_reason for event in first] == [None, None, "length"]
    assert "".join(e.text for e in first) == "".join(chr(65 + t) for e in first for t in e.tokens)
    assert [event.tokens for event in again] == [event.tokens for event in first]
    assert (first[0].num_cached, again[0].num_cached) == (0, 39)
    assert first[0].time_s < first[1].time_s < again[0].time_s


def test_several_answers_to_one_prompt_have_seeds_of_their_own(start: Start) -> None:
    """Answer i is that of seed + i."""
    def seeded(seed: int, n: int) -> Generate:
        return Generate(prompt_tokens=[1, 2], params=SamplingParams(seed=seed, max_tokens=12, ignore_eos=True), n=n)

    async def ask() -> tuple[list[Tokens], list[list[int]]]:
        async with hashed(start) as client:
            return (await events_of(client, seeded(5, n=3)),
                    [await tokens_of(client, seeded(5 + i, n=1)) for i in range(3)])

    together, alone = asyncio.run(ask())
    assert [[t for e in together if e.index == i for t in e.tokens] for i in range(3)] == alone
    assert alone[0] != alone[1]


def test_progress_and_sizes_are_told(start: Start) -> None:
    """First what compiling takes, then what the model is."""
    told: list[Progress] = []

    async def ask() -> tuple[int, int, int]:
        async with await start(load_hashed, told.append) as client:
            return client.model.n_ctx, client.model.n_vocab, client.model.max_running

    assert asyncio.run(ask()) == (N_CTX, 61, 8)
    assert told == [Progress("loading"), Progress("compiling", "some.kernel", 1, 2)]


def test_a_closed_stream_is_cancelled_before_the_next_step(start: Start) -> None:
    """What is asked afterwards finds the engine idle."""
    async def ask() -> tuple[int, int]:
        async with hashed(start) as client:
            async with aclosing(client.generate(job(5, ENDLESS))) as stream:
                await anext(stream)
                busy = await client.status()
            idle = await client.status()
            return busy.n_running, idle.n_running + idle.n_waiting

    assert asyncio.run(ask()) == (1, 0)


def test_a_cancelled_task_cancels_its_answers(start: Start) -> None:
    """All of several answers, in whatever state they are; the others go on."""
    async def ask() -> tuple[int, int]:
        async with hashed(start) as client, aclosing(client.generate(job(5, ENDLESS))) as other:
            await anext(other)
            tasks = [asyncio.create_task(events_of(client, job(5 + i, ENDLESS, n=3))) for i in range(6)]
            await client.status()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            status = await client.status()
            return status.n_running, status.n_waiting

    assert asyncio.run(ask()) == (1, 0)


def test_outputs_are_those_of_the_engine(start: Start) -> None:
    """Logits, and the vectors of several texts, pooled or not."""
    texts = [[1, 2, 3], [4]]

    async def ask() -> tuple[Any, Any, Any, Any]:
        async with hashed(start) as client:
            return (await client.logits([1, 2, 3], 2), await client.embed(texts, "none"), await client.embed(texts),
                    await client.embed([]))

    core = load_hashed(lambda *_: None)
    logits, states, means, nothing = asyncio.run(ask())
    np.testing.assert_array_equal(logits, whole(core.logits([1, 2, 3], 2)))
    expected = whole(core.embed(texts, "none"))
    assert [rows.shape for rows in states] == [(3, 7), (1, 7)]
    assert all(map(np.array_equal, states, expected))
    assert all(map(np.array_equal, means, (rows.mean(axis=0, keepdims=True) for rows in expected)))
    assert nothing == []


def test_errors_keep_their_class_and_words(start: Start) -> None:
    """Each is the trouble of who asked, and others go on."""
    async def ask() -> list[int]:
        async with hashed(start) as client:
            with pytest.raises(PromptTooLongError, match=r"the prompt has 5,000 tokens but the context holds 4,096"):
                await events_of(client, job(5000))
            with pytest.raises(RequestError, match="token 61 is not in the vocabulary"):
                await client.logits([61], 1)
            with pytest.raises(RequestError, match="n=0: expected one answer at least"):
                await events_of(client, job(n=0))
            return await tokens_of(client, job(5, 4))

    assert asyncio.run(ask()) == expected_tokens(5, 4)


def test_what_a_request_may_say_reaches_the_engine(start: Start) -> None:
    """Who has no time left, and who shares no prefix with others."""
    async def ask() -> list[int]:
        async with hashed(start) as client:
            with pytest.raises(DeadlineError, match="the time that the request allowed is up"):
                await events_of(client, job(40, ENDLESS, deadline_s=0.0))
            events = [await events_of(client, job(40, 2, salt=salt)) for salt in (1, 1, 2)]
            return [answer[0].num_cached for answer in events]

    assert asyncio.run(ask()) == [0, 39, 0]


def test_requests_are_made_as_a_client_says() -> None:
    """One for each answer; all that the engine gives is its own."""
    constraint = ConstraintSpec("regex", "[0-9]+")
    command = Generate(id=7, prompt_tokens=[1, 2], params=SamplingParams(seed=2**32 - 1), n=2, constraint=constraint,
                       priority=3, salt=4)
    first, second = requests_of(command)
    assert (first.id, second.id) == (7, 8)
    assert (first.params.seed, second.params.seed) == (2**32 - 1, 0)
    assert (second.prompt_tokens, second.constraint, second.priority, second.salt, second.deadline_s) == (
        [1, 2], constraint, 3, 4, None)


def test_metrics_are_told(start: Start) -> None:
    """In Prometheus's text format."""
    async def ask() -> str:
        async with hashed(start) as client:
            await events_of(client, job(5, 4))
            return await client.metrics()

    assert "llamacpp:tokens_predicted_total 4.0" in asyncio.run(ask())


def test_a_state_is_saved_and_restored_by_another_engine(start: Start, tmp_path: Path) -> None:
    """Which then has nothing of it to compute. What is not there is an error."""
    path = str(tmp_path / "state")

    async def save() -> list[int]:
        async with hashed(start) as client:
            with pytest.raises(SavedStateError, match="none of these 40 tokens is computed"):
                await client.save_state(path, job(40).prompt_tokens)
            await events_of(client, job(40, 1))
            return (await client.save_state(path, job(40).prompt_tokens)).tokens

    async def restore() -> tuple[list[int], int]:
        async with hashed(start) as client:
            saved = await client.restore_state(path)
            return saved.tokens, (await events_of(client, job(40, 1)))[0].num_cached

    tokens = asyncio.run(save())
    assert tokens == list(range(40))
    assert asyncio.run(restore()) == (tokens, 39)


@pytest.mark.parametrize(("load", "error", "words"), [
    (load_missing, GGUFError, "expected the magic GGUF"),
    (load_broken, EngineError, r"the engine cannot start \(ZeroDivisionError: a bug\)"),
    (load_dying, EngineError, r"ended unexpectedly \(exit code 7\)"),
])
def test_a_model_that_cannot_be_opened_is_an_error_of_the_start(load: Any, error: type[Exception], words: str) -> None:
    """It is not tried again."""
    with pytest.raises(error, match=words):
        asyncio.run(ProcessClient.start(load))


def test_a_slow_reader_ends_its_own_answer_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does not wait for it."""
    monkeypatch.setattr(async_client, "MAX_UNREAD", 100)

    async def read_slowly(client: AsyncClient) -> None:
        async for _ in client.generate(job(5, ENDLESS)):
            while (await client.status()).n_running:
                pass

    async def ask() -> list[int]:
        async with hashed(start) as client:
            quick = asyncio.create_task(tokens_of(client, job(6, 40)))
            with pytest.raises(EngineError, match="100 pieces of this answer wait for a reader that is too slow"):
                await read_slowly(client)
            return await quick

    assert asyncio.run(ask()) == expected_tokens(6, 40)


def test_closing_lets_answers_come_to_their_end(start: Start) -> None:
    """But takes no more."""
    async def ask() -> tuple[list[int], str]:
        client = await start(load_hashed)
        stream = client.generate(job(5, 200))
        first = await anext(stream)
        closing = asyncio.create_task(client.aclose())
        rest = [token async for event in stream for token in event.tokens]
        with pytest.raises(EngineError, match="shutting down"):
            await events_of(client, job())
        await closing
        return [*first.tokens, *rest], client.health

    assert asyncio.run(ask()) == (expected_tokens(5, 200), "closed")


def test_closing_may_end_answers_with_an_error(start: Start) -> None:
    """And closing again changes nothing."""
    async def ask() -> None:
        client = await start(load_hashed)
        stream = client.generate(job(5, ENDLESS))
        await anext(stream)
        await client.aclose("cancel")
        await client.aclose()
        with pytest.raises(EngineError, match="the engine is shutting down"):
            async for _ in stream:
                pass

    asyncio.run(ask())


def test_a_killed_engine_fails_its_requests_and_starts_again() -> None:
    """All that was asked for has an error; afterwards answers are what they were."""
    async def ask() -> list[int]:
        async with hashed(ProcessClient.start) as client:
            readers = [asyncio.create_task(events_of(client, job(5 + i, ENDLESS))) for i in range(3)]
            await anext(client.generate(job(9, ENDLESS)))
            first = client.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            for reader in readers:
                with pytest.raises(EngineError, match=r"ended unexpectedly \(killed by SIGKILL\)"):
                    await reader
            with pytest.raises(EngineError, match="the engine starts again after it has failed"):
                await client.status()
            await client.wait_ready()
            assert client.pid != first
            return await tokens_of(client, job(5, 4))

    assert asyncio.run(ask()) == expected_tokens(5, 4)


async def kill_in_an_answer(client: ProcessClient) -> None:
    async with aclosing(client.generate(job(5, ENDLESS))) as stream:
        await anext(stream)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        async for _ in stream:
            pass


def test_an_engine_in_a_thread_that_cannot_go_on_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers end with the cause, and later requests are refused."""
    core = load_hashed(lambda *_: None)

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(core, "step", fail)
    monkeypatch.setattr(core, "reset", fail)

    async def ask() -> None:
        async with ThreadClient(core) as client:
            with pytest.raises(GgpyError, match="ZeroDivisionError: a bug"):
                await events_of(client, job())
            while client.health != "failed":
                await asyncio.sleep(0.01)
            with pytest.raises(EngineError, match="has failed and does not start again"):
                await events_of(client, job())

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_an_engine_that_fails_again_and_again_is_given_up() -> None:
    """After as many starts as there are delays; an answer in between sets the count back."""
    async def ask() -> None:
        async with await ProcessClient.start(load_hashed, restart_delays_s=(0.0,)) as client:
            for _ in range(2):
                await events_of(client, job())
                with pytest.raises(EngineError, match="killed"):
                    await kill_in_an_answer(client)
                await client.wait_ready()
            with pytest.raises(EngineError, match="killed"):
                await kill_in_an_answer(client)
            with pytest.raises(EngineError, match="killed"):
                await client.wait_ready()
            with pytest.raises(EngineError, match="the engine has failed and does not start again"):
                await client.status()

    asyncio.run(ask())


KILLED_PARENT = textwrap.dedent("""
    import asyncio, sys
    from ggpy.engine.messages import Generate
    from ggpy.engine.process_client import ProcessClient
    from tests.engine.engines import load_hashed

    async def main():
        client = await ProcessClient.start(load_hashed)
        print(client._process._pipes.addresses.folder, flush=True)
        async for _ in client.generate(Generate(prompt_tokens=[1])):
            await asyncio.get_running_loop().create_future()

    asyncio.run(main())
""")


def test_the_engine_ends_with_its_parent_however_that_ends() -> None:
    """Also in the middle of an answer. The standard error of both is one pipe, which ends when neither is there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", KILLED_PARENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment, text=True) as parent:
        assert parent.stdout is not None
        folder = parent.stdout.readline().strip()
        assert Path(folder).is_dir()
        parent.kill()
        _, errors = parent.communicate(timeout=30)
    assert errors == ""
    assert not Path(folder).exists()


FORGETFUL_PARENT = KILLED_PARENT.replace("await asyncio.get_running_loop().create_future()", "return")


def test_a_program_that_forgets_to_close_its_client_ends_all_the_same() -> None:
    """With everything that it started."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", FORGETFUL_PARENT], capture_output=True, env=environment, text=True,
                           timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not Path(ended.stdout.strip()).exists()


CLEAN_PARENT = textwrap.dedent("""
    import asyncio, sys
    from functools import partial
    from ggpy.engine.config import SamplingParams
    from ggpy.engine.messages import Generate
    from ggpy.engine.process_client import ProcessClient
    from ggpy.loading import ModelOptions, load_core
    from ggpy.text import ModelText

    async def main(path):
        text = ModelText.from_file(path)
        prompt = text.chat_tokens([{"role": "user", "content": "What is the capital of France?"}])
        async with await ProcessClient.start(partial(load_core, path, ModelOptions(n_ctx=256))) as client:
            job = Generate(prompt_tokens=prompt, params=SamplingParams(temperature=0, max_tokens=8))
            print(*[event.text async for event in client.generate(job)], sep="")
            print(*[token async for event in client.generate(job) for token in event.tokens])

    asyncio.run(main(sys.argv[1]))
    print(*sorted({"numba", "llvmlite"} & set(sys.modules)))
""")


def test_a_model_in_a_process_gives_the_tokens_that_it_gives_here(model_path: Callable[[str], Path]) -> None:
    """And the process that asks loads no compiler."""
    path = model_path("smollm2")
    asked = subprocess.run([sys.executable, "-c", CLEAN_PARENT, str(path)], capture_output=True, text=True, check=True)
    text, tokens, compilers = asked.stdout.split("\n")[:3]
    core = load_core(path, ModelOptions(n_ctx=256))

    async def ask() -> list[int]:
        prompt = ModelText.from_file(path).chat_tokens([{"role": "user", "content": "What is the capital of France?"}])
        async with ThreadClient(core) as client:
            params = SamplingParams(temperature=0, max_tokens=8)
            return await tokens_of(client, Generate(prompt_tokens=prompt, params=params))

    expected = asyncio.run(ask())
    assert [int(token) for token in tokens.split()] == expected
    assert text == core.tokenizer.decode(expected)
    assert compilers == ""


def test_adapters_can_be_listed_and_changed(start: Start) -> None:
    """The fake engine has none."""
    async def ask() -> tuple[Any, str]:
        async with hashed(start) as client:
            with pytest.raises(RequestError, match="lora: id 0: there is no such adapter, expected none"):
                await client.set_adapters(((0, 1.0),))
            with pytest.raises(RequestError) as refused:
                await events_of(client, job(adapters=((3, 1.0),)))
            return await client.adapters(), str(refused.value)

    adapters, refusal = asyncio.run(ask())
    assert not adapters
    assert refusal.startswith("lora: id 3")
