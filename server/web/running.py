"""The answers that run, and how they end with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from ggpy.server.errors import LoadingError

CUT_S = 2.0         # in which answers that are cut off say so to their clients


class Running:
    """The requests that wait for an answer."""

    def __init__(self) -> None:
        self.is_cut = False         # none of them is waited for any more
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The task that calls this answers a request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def end(self, patience_s: float, hurry: asyncio.Event) -> None:
        """Wait for all answers, until `hurry` is set or for so long, and cut off those that are left."""
        hurrying = asyncio.create_task(hurry.wait())
        answering = asyncio.create_task(_ended(self._tasks))
        await asyncio.wait([hurrying, answering], timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        answering.cancel()
        self.is_cut = True
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_S)

    def claim_cancellation(self) -> LoadingError | None:
        """What the client of a request that is cancelled is told, which goes on then; None: it has gone away itself."""
        if not self.is_cut:
            return None
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return LoadingError("the server ended before the answer did")


RUNNING = web.AppKey("running", Running)


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        await asyncio.wait(set(tasks))
