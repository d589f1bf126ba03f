"""An engine in a thread of this process, behind the interface of one that has its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from ggpy.engine.async_client import AsyncClient, CloseMode
from ggpy.engine.core import EngineCore
from ggpy.engine.messages import Answer, Command, Progress, Shutdown
from ggpy.engine.process import Load
from ggpy.engine.service import EngineService
from ggpy.errors import EngineError

logger = logging.getLogger("ggpy")


class ThreadClient(AsyncClient):
    """Runs `core`, which belongs to it from then on, in a thread."""

    def __init__(self, core: EngineCore) -> None:
        super().__init__()
        self._service = EngineService(core, self._pass_on)
        self._thread = threading.Thread(target=self._run, name="ggpy-engine", daemon=True)
        self._thread.start()
        self._received([self._service.ready])

    @classmethod
    async def start(cls, load: Load, progress: Callable[[Progress], None] = lambda progress: None) -> Self:
        """Open a model. Raises what `load` does; `progress` is called in the event loop."""
        loop = asyncio.get_running_loop()

        def compiled(name: str, done: int, of: int) -> None:
            loop.call_soon_threadsafe(progress, Progress("compiling", name, done, of))

        progress(Progress("loading"))
        return cls(await asyncio.to_thread(load, compiled))

    async def aclose(self, mode: CloseMode = "finish") -> None:
        self._is_closing = True
        if mode == "finish":
            await self._idle.wait()
        self._fail_all(EngineError("the engine is shutting down"))
        if self.health != "closed":
            self.health = "closed"
            self._send(Shutdown())
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._service.run()
        except BaseException:
            logger.exception("the engine fails")
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        if self.health != "closed":
            self.health = "failed"
            self._fail_all(EngineError("the engine has failed; see its log"))

    def _send(self, command: Command) -> None:
        self._service.obey(command)

    def _pass_on(self, answers: list[Answer]) -> None:
        """Called by the engine's thread. Nobody is left to be told once the event loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._received, answers)
