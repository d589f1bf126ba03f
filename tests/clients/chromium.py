"""A headless Chromium, as far as tests of a page need one: its DevTools protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 30.0
LOOK_S = 0.02


def find_chromium() -> str | None:
    """The program; None if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Page:
    """One page. Everything that went wrong in it is in `problems`."""

    def __init__(self, program: str, profile: Path, *, is_dark: bool = False) -> None:
        self.problems: list[str] = []
        self._command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run", "about:blank"]
        self._profile, self._is_dark, self._id = profile, is_dark, 0
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def __aenter__(self) -> Page:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         start_new_session=True)
        self._http = aiohttp.ClientSession()
        port_file, end_s = self._profile / "DevToolsActivePort", time.monotonic() + TIMEOUT_S
        while not (port_file.is_file() and port_file.read_text().count("\n")):
            assert time.monotonic() < end_s, "Chromium does not start"
            await asyncio.sleep(LOOK_S)
        port = int(port_file.read_text().splitlines()[0])
        async with self._http.get(f"http://127.0.0.1:{port}/json/list") as reply:
            target = next(target for target in await reply.json() if target["type"] == "page")
        self._socket = await self._http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setDeviceMetricsOverride", width=900, height=700, deviceScaleFactor=1, mobile=False)
        await self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if self._is_dark else "light"}])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._http.close()
        os.killpg(self._process.pid, signal.SIGKILL)        # a browser is many processes
        self._process.wait(TIMEOUT_S)

    async def call(self, method: str, **params: Any) -> Any:
        """One call of the protocol. Raises AssertionError with what it says is wrong."""
        self._id += 1
        self._answers[self._id] = future = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._id, "method": method, "params": params})
        answer = await asyncio.wait_for(future, TIMEOUT_S)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def value(self, code: str) -> Any:
        """What JavaScript says."""
        told = await self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, code: str) -> None:
        """Wait until JavaScript says yes."""
        end_s = time.monotonic() + TIMEOUT_S
        while not await self.value(f"Boolean({code})"):
            assert time.monotonic() < end_s, f"it never was so: {code}; {self.problems}"
            await asyncio.sleep(LOOK_S)

    async def write(self, text: str) -> None:
        """As if it was typed where the cursor is."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, modifiers: int = 0) -> None:
        """A key down and up; `modifiers` 1 is Alt, 8 Shift."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, ord(key[0].upper()))
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers,
                            windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    async def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            params = told.get("params", {})
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            elif told["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
