"""The end of an answer, of an engine and of who asks it: cancelling, closing, crashes."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ggpy.engine import async_client
from ggpy.engine.async_client import AsyncClient
from ggpy.engine.process_client import ProcessClient
from ggpy.engine.thread_client import ThreadClient
from ggpy.errors import EngineError, GgpyError, GGUFError
from tests.engine.asking import ENDLESS, events_of, expected_tokens, hashed, job, tokens_of
from tests.engine.conftest import Start
from tests.engine.engines import load_broken, load_dying, load_hashed, load_missing


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


@pytest.mark.parametrize(("load", "error", "words"), [
    (load_missing, GGUFError, "expected the magic GGUF"),
    (load_broken, EngineError, r"the engine cannot start \(ZeroDivisionError: a bug\)"),
    (load_dying, EngineError, r"ended unexpectedly \(exit code 7\)"),
])
def test_a_model_that_cannot_be_opened_is_an_error_of_the_start(load: Any, error: type[Exception], words: str) -> None:
    """It is not tried again."""
    with pytest.raises(error, match=words):
        asyncio.run(ProcessClient.start(load))


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


async def kill_in_an_answer(client: ProcessClient) -> None:
    async with aclosing(client.generate(job(5, ENDLESS))) as stream:
        await anext(stream)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        async for _ in stream:
            pass


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

ROOT = Path(__file__).parents[2]


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
