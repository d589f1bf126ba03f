"""The server from its start to its end."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.recording import Recorder
from ggpy.errors import ConfigError, GgpyError
from ggpy.server.app import make_app
from ggpy.server.context import Server
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.models import Entry, LoadedModel
from ggpy.server.settings import ServerSettings

CLOSING_S = 0.2         # in which connections without an answer that is waited for end by themselves
MAX_NAMES = 12          # of models that are said at the start

logger = logging.getLogger("ggpy")


async def serve(settings: ServerSettings, entries: list[Entry], *, is_single: bool) -> None:
    """Serve until SIGINT or SIGTERM, then let what runs come to its end; a second signal ends it at once.

    Raises ConfigError if the server cannot listen or record, and what loading the only model raises.
    """
    logging.getLogger("aiohttp.server").addFilter(is_own_fault)
    server = Server(settings, ModelManager(settings, entries, is_single=is_single))
    runner = web.AppRunner(make_app(server), handler_cancellation=True, shutdown_timeout=CLOSING_S,
                           access_log=logger if settings.is_verbose else None)
    await runner.setup()
    gc.freeze()         # the program itself stays: looking through it would stall streams for 40 ms at each unloading
    stop, hurry, loading = asyncio.Event(), asyncio.Event(), None
    watching = asyncio.create_task(server.models.watch())
    try:
        addresses = await listen(runner, settings)
        if settings.record_path is not None:
            server.models.recorder = Recorder(settings.record_path)
        if is_single:
            server.models.single.state = "loading"
            loading = asyncio.create_task(server.models.load(server.models.single))
        for entry in server.models.entries.values():
            if entry.loads_on_startup:
                server.start(server.models.load(entry))
        with signals(stop, hurry):
            say(f"listening on {', '.join(addresses)}")
            if not settings.is_local and not settings.api_keys:
                say("warning: whoever reaches this machine may ask, for there is no --api-key")
            if not is_single:
                say(offer(server.models.entries.values()))
                say_page(settings, addresses)
            await until(stop, loading, lambda model: introduce(model, settings, addresses))
            server.is_ending = True
            await drain(server, runner, hurry)
    finally:
        watching.cancel()
        if loading is not None and not loading.done():
            loading.cancel()
            with suppress(asyncio.CancelledError, GgpyError):
                await loading
        await runner.cleanup()
        await server.models.aclose()


def is_own_fault(record: logging.LogRecord) -> bool:
    """Whether aiohttp tells of something else than a client that sends no HTTP, or a body that is not what it says."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


async def introduce(model: LoadedModel, settings: ServerSettings, addresses: Sequence[str]) -> None:
    """Say what is there now, and where."""
    n_tokens = max((sum(use) for use in (await model.client.status()).pages), default=0) * PAGE_TOKENS
    room = f": {model.n_ctx:,} tokens for a request" + (f", {n_tokens:,} for all together" if n_tokens else "")
    say(f"the model is ready: {model.info.path.name}{room}")
    say_page(settings, addresses)


def offer(entries: Iterable[Entry]) -> str:
    """Which models requests may name."""
    names = [entry.name for entry in entries if entry.is_listed]
    if not names:
        return "there are no models on this machine; `ggpy pull smollm2` fetches one"
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f"models that requests may name: {', '.join(names[:MAX_NAMES])}{more}"


def say_page(settings: ServerSettings, addresses: Sequence[str]) -> None:
    """Say where the page is, if there is one."""
    if settings.has_ui and addresses[0].startswith("http"):
        # what means all addresses is none that every browser takes
        url = addresses[0].replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        say(f"chat with it at {url}/")


async def until(stop: asyncio.Event, loading: asyncio.Task[LoadedModel] | None,
                when_loaded: Callable[[LoadedModel], Awaitable[None]]) -> None:
    """Wait for `stop`; `when_loaded` is called meanwhile. Raises what `loading` raises."""
    stopping = asyncio.create_task(stop.wait())
    try:
        if loading is not None:
            await asyncio.wait([stopping, loading], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                await when_loaded(loading.result())
        await stopping
    finally:
        stopping.cancel()


async def drain(server: Server, runner: web.AppRunner, hurry: asyncio.Event) -> None:
    """Take no more connections, and let answers come to their end for a while, or until `hurry` is set."""
    for site in list(runner.sites):
        await site.stop()
    if n := len(server.running):
        say(f"waiting for {n} {'answer' if n == 1 else 'answers'}; Ctrl-C again ends {'it' if n == 1 else 'them'}")
    await server.running.end(server.settings.drain_s, hurry)


def say(text: str) -> None:
    """Tell whoever started the server."""
    print(f"ggpy: {text}", file=sys.stderr, flush=True)


@contextmanager
def signals(first: asyncio.Event, further: asyncio.Event) -> Iterator[None]:
    """Has the first SIGINT or SIGTERM set `first` instead of ending the process, and all others `further`."""
    loop = asyncio.get_running_loop()

    def note() -> None:
        (further if first.is_set() else first).set()

    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(note))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def listen(runner: web.AppRunner, settings: ServerSettings) -> list[str]:
    """Listen on every address of the settings; returns them as URLs. Raises ConfigError."""
    context = None
    if settings.ssl_files is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(*settings.ssl_files)
        except OSError as error:
            raise ConfigError(f"--ssl-cert-file {settings.ssl_files[0]}: {error}") from error
    urls, port = [], settings.port
    for host in settings.hosts:
        try:
            if host.endswith(".sock"):
                remove_dead_socket(Path(host))
                await web.UnixSite(runner, host, ssl_context=context).start()
                urls.append(f"unix:{host}")
                continue
            site = web.TCPSite(runner, host.strip("[]"), port, ssl_context=context,
                               reuse_port=settings.reuse_port or None)
            await site.start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}, port {port}: {reason(error)}; --host and --port "
                              "choose another address") from error
        port = runner.addresses[-1][1]      # the one that the system picked
        name = f"[{host.strip('[]')}]" if ":" in host else host
        urls.append(f"http{'s' if context else ''}://{name}:{port}{settings.api_prefix}")
    return urls


def reason(error: OSError) -> str:
    """Why it failed; asyncio's own text has the address once more, as Python writes it."""
    # names that cannot be found have numbers of their own
    number = error.errno or 0
    return os.strerror(number) if number in errno.errorcode else error.strerror or str(error)


def remove_dead_socket(path: Path) -> None:
    """Remove the file of a UNIX socket that nobody listens on any more."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
