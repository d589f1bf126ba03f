"""The load of `soak.py`: requests of every dialect whose answers are known, and clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from tests.server.fuzz_bodies import mutated
from tests.server.fuzz_dialects import is_error

Kind = Literal["llama", "completions", "chat", "responses", "anthropic", "ollama chat", "ollama generate"]
KINDS: tuple[Kind, ...] = ("llama", "completions", "chat", "responses", "anthropic", "ollama chat", "ollama generate")
PATHS: dict[Kind, str] = {
    "llama": "/completion", "completions": "/v1/completions", "chat": "/v1/chat/completions",
    "responses": "/v1/responses", "anthropic": "/v1/messages", "ollama chat": "/api/chat",
    "ollama generate": "/api/generate"}
LOOKS = ("/health", "/props", "/v1/models", "/models", "/api/tags", "/api/ps", "/api/version", "/slots?model={}",
         "/metrics?model={}", "/openapi.json", "/", "/no/such/path")
SYSTEMS = ("You are a helpful assistant.", "You answer in one short sentence, and never guess. " * 6)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
          "additionalProperties": False}
N_SLOTS = 4
TURN_S = 15.0           # most requests name the same model for so long
OTHER_SHARE = 0.02      # of requests that name another
TIMEOUT_S = 120.0       # for an answer, with the swaps of models that it may have to wait for


@dataclass(frozen=True, slots=True)
class Case:
    """A request whose answer is always the same."""

    model: str
    kind: Kind
    question: str
    system: str
    n_tokens: int
    is_held: bool           # to a schema

    def body(self, *, is_stream: bool, slot: int = -1) -> dict[str, Any]:
        """What is sent; greedy."""
        text, n = f"{self.system}\n{self.question}", self.n_tokens
        messages = [{"role": "system", "content": self.system}, {"role": "user", "content": self.question}]
        usual = {"model": self.model, "temperature": 0, "stream": is_stream}
        options = {"num_predict": n, "temperature": 0}
        match self.kind:
            case "llama":
                return {**usual, "prompt": text, "n_predict": n, "id_slot": slot,
                        **({"json_schema": SCHEMA} if self.is_held else {})}
            case "completions":
                return {**usual, "prompt": text, "max_tokens": n}
            case "chat":
                held = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}
                return {**usual, "messages": messages, "max_tokens": n, **(held if self.is_held else {})}
            case "responses":
                return {**usual, "instructions": self.system, "input": self.question, "max_output_tokens": n}
            case "anthropic":
                return {**usual, "system": self.system, "messages": messages[1:], "max_tokens": n}
            case "ollama chat":
                return {"model": self.model, "messages": messages, "stream": is_stream, "options": options,
                        **({"format": SCHEMA} if self.is_held else {})}
        return {"model": self.model, "prompt": self.question, "system": self.system, "stream": is_stream,
                "options": options}


def make_cases(models: Sequence[str]) -> list[Case]:
    """Some of each kind for each model. No prompt begins another, so nobody's answer is part of a prompt."""
    rng = random.Random(1)
    return [Case(model, kind, f"Task {i}: what is {rng.randrange(10**6)} made of, and why? " * rng.choice([1, 1, 8]),
                 SYSTEMS[i % 2], rng.choice([4, 16, 48]), is_held=i == 3)
            for model in models for kind in KINDS for i in range(4)]


def text_of(kind: Kind, data: bytes, *, is_stream: bool) -> str | None:
    """The text of a reply; None if it did not come to its end."""
    if not is_stream:
        return whole_text(kind, json.loads(data))
    if kind.startswith("ollama"):
        lines = [json.loads(line) for line in data.splitlines()]
        return "".join(whole_text(kind, line) for line in lines) if lines and lines[-1].get("done") else None
    events = [json.loads(part[6:]) for part in data.decode().split("\n")
              if part.startswith("data: {")]
    match kind:
        case "llama":
            return "".join(event["content"] for event in events) if events and events[-1].get("stop") else None
        case "completions":
            return "".join(event["choices"][0]["text"] for event in events) if b"data: [DONE]" in data else None
        case "chat":
            texts = [event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]]
            return "".join(texts) if b"data: [DONE]" in data else None
        case "responses":
            if not events or events[-1]["type"] not in ("response.completed", "response.incomplete"):
                return None
            return whole_text(kind, events[-1]["response"])
    texts = [event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"]
    return "".join(texts) if events and events[-1]["type"] == "message_stop" else None


def whole_text(kind: Kind, reply: Any) -> str:
    """The text of a reply in one piece."""
    match kind:
        case "llama":
            text = reply["content"]
        case "completions":
            text = reply["choices"][0]["text"]
        case "chat":
            text = reply["choices"][0]["message"]["content"]
        case "responses":
            text = "".join(part["text"] for item in reply["output"] if item["type"] == "message"
                           for part in item["content"])
        case "anthropic":
            text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
        case "ollama chat":
            text = reply["message"]["content"]
        case _:
            text = reply["response"]
    return str(text or "")


@dataclass(slots=True)
class Tally:
    """What came of the load."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)      # answers that are not the oracle's
    faults: list[str] = field(default_factory=list)     # statuses from 500, broken streams
    slowest_s: float = 0.0


class Load:
    """Clients that send requests until they are told to stop. `oracle` has the text of each case."""

    def __init__(self, url: str, oracle: dict[Case, str], seed: int) -> None:
        self.tally = Tally()
        self._url, self._oracle = url, oracle
        self._cases = list(oracle)
        self._models = sorted({case.model for case in oracle})
        self._rng = random.Random(seed)
        self._start_s = time.monotonic()

    async def run(self, n_clients: int, seconds: float) -> None:
        """Have `n_clients` of them for so long."""
        end_s = time.monotonic() + seconds
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(self._url, connector=connector, timeout=timeout) as session, \
                asyncio.TaskGroup() as group:
            for _ in range(n_clients):
                group.create_task(self._client(session, end_s))

    async def _client(self, session: aiohttp.ClientSession, end_s: float) -> None:
        actions: list[tuple[int, Callable[[aiohttp.ClientSession], Any]]] = [
            (60, self._ask), (14, self._leave), (14, self._send_nonsense), (5, self._look), (4, self._use_slot),
            (2, self._read_slowly), (1, self._swap)]
        while time.monotonic() < end_s:
            action = self._rng.choices([action for _, action in actions], [weight for weight, _ in actions])[0]
            start_s = time.monotonic()
            try:
                await action(session)
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
                self.tally.faults.append(f"{action.__name__}: {error!r}"[:300])
            self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - start_s)

    def _model(self) -> str:
        turn = int((time.monotonic() - self._start_s) / TURN_S)
        if self._rng.random() < OTHER_SHARE:
            turn += 1
        return self._models[turn % len(self._models)]

    def _case(self) -> Case:
        model = self._model()
        return self._rng.choice([case for case in self._cases if case.model == model])

    def _take(self, name: str, status: int, data: bytes) -> bool:
        """Count a reply; whether it is an answer."""
        self.tally.counts[name] += 1
        if status == 503:
            self.tally.counts["503"] += 1
        elif status >= 500 and status != 501:
            self.tally.faults.append(f"{name}: {status} {data[:300]!r}")
        return status == 200

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        """Compare an answer with the oracle's."""
        case, is_stream = self._case(), self._rng.random() < 0.6
        body = case.body(is_stream=is_stream, slot=self._rng.choice([-1, -1, *range(N_SLOTS)]))
        async with session.post(PATHS[case.kind], json=body) as reply:
            data = await reply.read()
        if not self._take(case.kind, reply.status, data):
            if reply.status != 503:
                self.tally.wrong.append(f"{case}: {reply.status} {data[:300]!r}")
            return
        text = text_of(case.kind, data, is_stream=is_stream)
        if text != self._oracle[case]:
            self.tally.wrong.append(f"{case} stream={is_stream}: {text!r} for {self._oracle[case]!r} ({data[-200:]!r})")

    async def _leave(self, session: aiohttp.ClientSession) -> None:
        """Go away: before the answer, or somewhere in it."""
        case = self._case()
        self.tally.counts["disconnects"] += 1
        try:
            async with asyncio.timeout(self._rng.choice([0.0005, 0.005, 0.05, 0.3, 1])):
                async with session.post(PATHS[case.kind], json=case.body(is_stream=self._rng.random() < 0.7)) as reply:
                    async for _ in reply.content.iter_any():
                        if self._rng.random() < 0.2:
                            reply.close()
                            return
        except TimeoutError:
            pass

    async def _send_nonsense(self, session: aiohttp.ClientSession) -> None:
        """A mutated request is answered or refused."""
        sent = mutated(self._rng)
        dialect, path = sent.seed.dialect, sent.seed.path
        headers = {name: value for name, value in sent.headers.items() if name != "Expect"}
        async with session.request(sent.seed.method, path, data=sent.data, headers=headers) as reply:
            data = await reply.read()
        self._take("nonsense", reply.status, data)
        if reply.status >= 400 and not is_error(data, dialect, reply.status):
            self.tally.faults.append(f"{sent}: {reply.status} {data[:200]!r}")

    async def _look(self, session: aiohttp.ClientSession) -> None:
        async with session.get(self._rng.choice(LOOKS).format(self._model())) as reply:
            self._take("looks", reply.status, await reply.read())

    async def _use_slot(self, session: aiohttp.ClientSession) -> None:
        """Save, restore or erase one."""
        action, slot = self._rng.choice(["save", "restore", "erase"]), self._rng.randrange(N_SLOTS)
        model = self._model()
        async with session.post(f"/slots/{slot}", params={"action": action, "model": model},
                                json={"filename": f"{model}-{self._rng.randrange(3)}"}) as reply:
            self._take(f"slots {action}", reply.status, await reply.read())

    async def _read_slowly(self, session: aiohttp.ClientSession) -> None:
        """A stream, with pauses; its text is right all the same."""
        case = self._case()
        async with session.post(PATHS[case.kind], json=case.body(is_stream=True)) as reply:
            data = b""
            async for part in reply.content.iter_chunked(200):
                data += part
                await asyncio.sleep(0.01)
        if self._take("slow readers", reply.status, data) and \
                text_of(case.kind, data, is_stream=True) != self._oracle[case]:
            self.tally.wrong.append(f"{case} slowly: {data[-300:]!r}")

    async def _swap(self, session: aiohttp.ClientSession) -> None:
        """Unload a model, whoever uses it."""
        async with session.post("/models/unload", json={"model": self._model()}) as reply:
            self._take("unloads", reply.status, await reply.read())
