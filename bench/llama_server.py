"""A server as a process of a benchmark: llama-server's flags, and the start and end of any that has its API."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

START_S, END_S, POLL_S = 120.0, 10.0, 0.1
MIN_REUSE = 256         # tokens of a chunk that is worth moving within the cache


def flags(n_clients: int, n_threads: int, n_longest: int, pool_tokens: int, token_bytes: int) -> list[str]:
    """The best flags where there is memory for the keys and values of `pool_tokens`, of `token_bytes` each.

    Slots share one cache, and there are no more of them than it has room for at their longest: a full cache would end
    everybody's requests. The rest of the memory keeps prompts that left it.
    """
    n_slots = min(n_clients, max(1, pool_tokens // n_longest))
    n_cells = n_slots * n_longest
    spare_bytes = max(0, pool_tokens - n_cells) * token_bytes
    return ["-np", str(n_slots), "-c", str(n_cells), "--kv-unified", "-fa", "on", "-t", str(n_threads),
            "-tb", str(n_threads), "--cache-reuse", str(MIN_REUSE), "-cram", str(spare_bytes // 2**20), "--no-ui"]


@asynccontextmanager
async def running(program: Sequence[str], model: Path, arguments: Sequence[str]) -> AsyncIterator[str]:
    """The URL of a server that has loaded `model`; `program` is what starts it. Raises SystemExit with its last words
    if it does not start."""
    port = free_port()
    command = [*program, "-m", str(model), "--host", "127.0.0.1", "--port", str(port), *arguments]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise SystemExit(f"{program[0]} does not start: {error.strerror}") from error
        try:
            url = f"http://127.0.0.1:{port}"
            if not await is_healthy(url, process):
                log.seek(0)
                raise SystemExit(f"{program[0]} did not become ready: {log.read()[-2000:]}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def is_healthy(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server says that it can be used; False if it ends or takes longer than START_S."""
    async with aiohttp.ClientSession() as http:
        for _ in range(int(START_S / POLL_S)):
            if process.poll() is not None:
                return False
            try:
                async with http.get(f"{url}/health") as reply:
                    if reply.status == 200:
                        return True
            except aiohttp.ClientError:
                pass        # it does not listen yet
            await asyncio.sleep(POLL_S)
    return False


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
