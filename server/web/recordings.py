"""Streams that outlive their connection: what was sent is kept for a while, by the name of the conversation.

llama-server has this for pages that are loaded anew while an answer comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 4 * 1024 * 1024         # of one recording; what came first goes
MAX_RECORDINGS = 64                 # that have ended
KEPT_S = 300                        # after their end


@dataclass(eq=False)
class Recording:
    """What was sent to one request."""

    name: str
    started_s: int = field(default_factory=lambda: int(time.time()))
    completed_s: int = 0                        # 0: more may come
    n_bytes: int = 0                            # that were ever sent
    is_stopped: bool = False                    # by somebody who does not want the rest
    task: asyncio.Task[Any] | None = None       # that answers the request
    _data: bytearray = field(default_factory=bytearray)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_done(self) -> bool:
        return self.completed_s != 0

    @property
    def n_lost(self) -> int:
        """Bytes in front that are not kept any more."""
        return self.n_bytes - len(self._data)

    def add(self, data: bytes) -> None:
        """`data` is sent."""
        self._data += data
        self.n_bytes += len(data)
        if len(self._data) > MAX_BYTES:
            del self._data[: len(self._data) - MAX_BYTES]
        self._tell()

    def end(self) -> None:
        """Nothing more comes."""
        self.completed_s = int(time.time())
        self._tell()

    def stop(self) -> None:
        """End the request."""
        self.is_stopped = True
        if self.task is not None:
            self.task.cancel()

    async def read(self, start: int) -> AsyncGenerator[bytes, None]:
        """What was sent from byte `start` on, and what is sent until the end; a reader that is too slow loses it."""
        while start >= self.n_lost:
            changed = self._changed
            data = bytes(self._data[start - self.n_lost :])
            if data:
                start += len(data)
                yield data
            elif self.is_done:
                return
            else:
                await changed.wait()

    def _tell(self) -> None:
        """Wake all readers."""
        self._changed.set()
        self._changed = asyncio.Event()


# that of the request which this task answers
CURRENT: ContextVar[Recording | None] = ContextVar("recording", default=None)


class Recordings:
    """Those of a server: one of each name."""

    def __init__(self) -> None:
        self._found: dict[str, Recording] = {}

    def begin(self, name: str) -> Recording:
        """A new one, in place of what was called `name` before, which ends."""
        self.stop(name)
        self._expire()
        self._found[name] = Recording(name)
        return self._found[name]

    def find(self, name: str) -> Recording | None:
        self._expire()
        return self._found.get(name)

    def of(self, names: list[str]) -> list[Recording]:
        """Those of these names, and those of "name::model"."""
        self._expire()
        return [found for name in names for found in self._found.values()
                if found.name == name or found.name.startswith(f"{name}::")]

    def drop(self, recording: Recording) -> None:
        """Keep it no longer."""
        if self._found.get(recording.name) is recording:
            del self._found[recording.name]

    def stop(self, name: str) -> None:
        """End the request of this name and keep nothing of it."""
        recording = self._found.pop(name, None)
        if recording is not None:
            recording.stop()

    def stop_all(self) -> None:
        for name in list(self._found):
            self.stop(name)

    def _expire(self) -> None:
        done = sorted((found for found in self._found.values() if found.is_done), key=lambda one: one.completed_s)
        n_kept, now = len(done), time.time()
        for recording in done:
            if n_kept > MAX_RECORDINGS or now - recording.completed_s > KEPT_S:
                n_kept -= 1
                self.drop(recording)
