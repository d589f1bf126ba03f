"""Threads for what takes a request longer than the event loop may be held up, such as tokens of a text.

A body of many megabytes may take a minute. Such requests have a thread of their own, one after the other, so that
however many there are the others find a free one; the tokenizers' library, too, works on one of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

LARGE_BYTES = 1 << 20
LONG_BYTES = 1 << 17        # of a body whose lists may take too long for the event loop

P = ParamSpec("P")
T = TypeVar("T")

body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)       # of the request that is served


class Lanes(ThreadPoolExecutor):
    """The default executor of a server's event loop."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="ggpy-request")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="ggpy-large-request")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do it on a thread of the lane that the request belongs to from whose context this is called."""
        if body_bytes.get() > LARGE_BYTES:
            return self._large.submit(fn, *args, **kwargs)
        return super().submit(fn, *args, **kwargs)

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        self._large.shutdown(*args, **kwargs)
        super().shutdown(*args, **kwargs)


async def read(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `function`, which reads a request, returns; of a long body on a thread, for a long list takes seconds."""
    if body_bytes.get() > LONG_BYTES:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)
