"""The engine in a process or a thread of its own: what it answers."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.messages import Generate, Progress, Tokens
from ggpy.engine.service import requests_of
from ggpy.engine.thread_client import ThreadClient
from ggpy.errors import DeadlineError, PromptTooLongError, RequestError, SavedStateError
from ggpy.loading import ModelOptions, load_core
from ggpy.text import ModelText
from tests.engine.asking import ENDLESS, events_of, expected_tokens, hashed, job, tokens_of
from tests.engine.conftest import Start, whole
from tests.engine.engines import N_CTX, load_hashed


def test_progress_and_sizes_are_told(start: Start) -> None:
    """First what compiling takes, then what the model is."""
    told: list[Progress] = []

    async def ask() -> tuple[int, int, int]:
        async with await start(load_hashed, told.append) as client:
            return client.model.n_ctx, client.model.n_vocab, client.model.max_running

    assert asyncio.run(ask()) == (N_CTX, 61, 8)
    assert told == [Progress("loading"), Progress("compiling", "some.kernel", 1, 2)]


def test_many_streams_at_once_get_the_answers_they_would_get_alone(start: Start) -> None:
    """More than the engine runs at a time."""
    lengths = [3 + 7 * i % 50 for i in range(24)]
    expected = [expected_tokens(n, 20) for n in lengths]

    async def ask() -> list[list[int]]:
        async with hashed(start) as client:
            return await asyncio.gather(*(tokens_of(client, job(n, 20)) for n in lengths))

    assert asyncio.run(ask()) == expected


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
