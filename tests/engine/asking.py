"""An engine in a thread or in a process, without a model, and what tests ask of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ggpy.engine.async_client import AsyncClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Generate, Tokens
from ggpy.engine.thread_client import ThreadClient
from tests.engine.engines import N_CTX, load_hashed

Client = TypeVar("Client", bound=AsyncClient)
ENDLESS = N_CTX - 10


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
