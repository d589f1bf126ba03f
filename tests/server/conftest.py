"""A server on a tiny model, as clients meet it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ggpy.engine.config import SamplingParams
from ggpy.loading import ModelOptions
from ggpy.server.app import make_app
from ggpy.server.context import Server
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.models import Entry
from ggpy.server.settings import ServerSettings
from tests.models.arch_data import load_arch

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; those that are no JSON as text."""
        lines = [line.removeprefix(b"data: ") for line in self.data.split(b"\n\n") if line.startswith(b"data: ")]
        return [json.loads(line) if line.startswith((b"{", b"[{")) else line.decode() for line in lines]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found


@dataclass(eq=False)
class Served:
    """A server in a thread of its own, on a port that was free."""

    settings: ServerSettings
    source: Path
    is_single: bool = True      # else models are loaded when they are named
    port: int = 0
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S), "the server does not start"

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        entry = Entry("tiny", str(self.source), ("tiny",))
        self.server = Server(self.settings, ModelManager(self.settings, [entry], is_single=self.is_single))
        runner = web.AppRunner(make_app(self.server), handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        watching = asyncio.create_task(self.server.models.watch())
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            if self.is_single:
                await self.server.models.load(entry)
            self._started.set()
            await self._stop.wait()
        finally:
            watching.cancel()
            await runner.cleanup()
            await self.server.models.aclose()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """One request; `body` is sent as it is if it is bytes, else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return Reply(response.status, {name.lower(): value for name, value in response.getheaders()},
                         response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.ask("POST", path, body, headers)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama of 280 tokens."""
    return load_arch("llama", tmp_path_factory.mktemp("server")).path


@pytest.fixture(scope="session")
def make_server(tiny_model: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers, with settings beside those that every test wants; the same settings share one."""
    running: dict[str, Served] = {}

    def start(**settings: Any) -> Served:
        key = repr(settings)
        if key not in running:
            options = settings.pop("options", ModelOptions(n_ctx=256, n_threads=1))
            usual = {"options": options, "chat_template": CHATML, "has_metrics": True, "n_slots": 2,
                     "sampling_of": lambda _: SamplingParams(temperature=0)}
            running[key] = Served(ServerSettings(**{**usual, **settings}), tiny_model)
        return running[key]

    yield start
    for served in running.values():
        served.close()


@pytest.fixture
def server(make_server: Callable[..., Served]) -> Served:
    """One without further settings."""
    return make_server()
