"""What every route may need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from ggpy.errors import GgpyError
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.settings import ServerSettings
from ggpy.server.web.recordings import Recordings
from ggpy.server.web.running import Running

logger = logging.getLogger("ggpy")


@dataclass(eq=False)
class Server:
    """The server as a whole."""

    settings: ServerSettings
    models: ModelManager
    started_s: float = field(default_factory=time.time)     # seconds since 1970
    is_ending: bool = False                                 # no more requests are taken
    recordings: Recordings = field(default_factory=Recordings)
    running: Running = field(default_factory=Running)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        """Do `work` behind the request's back; errors are logged."""
        async def logged() -> None:
            try:
                await work
            except GgpyError as error:
                logger.error("%s", error)

        task = asyncio.get_running_loop().create_task(logged())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
