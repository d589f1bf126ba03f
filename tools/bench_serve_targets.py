"""What a serving benchmark sends requests to: the interface, and servers that speak HTTP."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from ggpy.errors import GgpyError, shown
from ggpy.tools.no_answer import why_no_answer

COMMON_WORDS = (
    "the of and to in is that for it was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know get through back "
    "much before go good new write our used me man too any day same right look think also around another came come "
    "work three word must because does part even place well such here take why things help put years different away "
    "again off went old number great tell men say small every found still between name should home big give air line "
    "set own under read last never us left end along while might next sound below saw something thought both few those "
    "always looked show large often together asked house world going want school important until form food keep "
    "children feet land side without boy once animals life enough took sometimes four head above kind began almost "
    "live page got earth need far hand high year mother light parts country father let night following picture being "
    "study second eyes soon times story boys since white days ever paper hard near sentence better best across during "
    "today others however sure means knew try told young miles sun ways thing whole hear example heard several change "
    "answer room sea against top turned learn point city play toward five using himself usually")
REFUSED = (429, 503)        # HTTP statuses of a server that is too busy

Problem = Literal["", "rejected", "failed"]


@dataclass(slots=True)
class Answer:
    """What came back, and when: `times_s` has a reading of time.perf_counter for each arrival of one or more tokens."""

    tokens: list[int] = field(default_factory=list)     # empty if the target does not tell them
    n_tokens: int = 0
    times_s: list[float] = field(default_factory=list)
    n_cached: int | None = None                         # prompt tokens that were not computed; None: not told
    n_preempted: int | None = None
    problem: Problem = ""
    message: str = ""                                   # what the problem was

    def arrived(self, tokens: Sequence[int], time_s: float) -> None:
        """Note that `tokens` came together."""
        self.tokens += tokens
        self.n_tokens += len(tokens)
        self.times_s.append(time_s)


class Target(Protocol):
    """Generates exactly as many tokens as asked for, the most probable ones."""

    name: str
    lacks: tuple[str, ...]      # what it does not tell

    async def words(self) -> list[int]:
        """Tokens of common words, each once, no control tokens among them."""

    async def n_ctx(self) -> int | None:
        """How many tokens a request may have; None: not told."""

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        """The answer to `prompt`. What goes wrong is part of it, not raised.

        It is written into `answer` as it comes: who cancels this keeps what had come by then.
        """

    async def n_preempted(self) -> int | None:
        """How often a request had to give way so far, in all; None: not told."""


def preemptions_in(metrics: str) -> int | None:
    """A counter of Prometheus whose name has "preempt" in it, as vLLM's num_preemptions has; None: there is none."""
    values = [sample.value for family in text_string_to_metric_families(metrics) for sample in family.samples
              if "preempt" in sample.name and sample.name.endswith("_total")]
    return int(sum(values)) if values else None


class Server(ABC):
    """A server that speaks HTTP, at `url`; used within `async with`."""

    lacks: tuple[str, ...] = ()

    def __init__(self, url: str, name: str | None = None, api_key: str | None = None) -> None:
        self.url, self.name = url.rstrip("/"), name or url
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> Self:
        # every request has a new connection: a server may close one that is kept just when the next request is sent
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True),
                                           headers=self._headers, timeout=aiohttp.ClientTimeout(total=None),
                                           read_bufsize=2**20)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._http.close()

    async def words(self) -> list[int]:
        reply = await self._json("POST", "/tokenize", {"content": COMMON_WORDS})
        return list(dict.fromkeys(reply["tokens"]))

    async def n_ctx(self) -> int | None:
        try:
            return int((await self._json("GET", "/props"))["default_generation_settings"]["n_ctx"])
        except (GgpyError, KeyError, TypeError, ValueError):
            return None

    async def n_preempted(self) -> int | None:
        async with self._http.get(f"{self.url}/metrics") as reply:
            return preemptions_in(await reply.text() if reply.status == 200 else "")

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        answer = Answer() if answer is None else answer
        path, body = self._request(prompt, n_output)
        try:
            async with self._http.post(self.url + path, json=body) as reply:
                if reply.status != 200:
                    answer.problem = "rejected" if reply.status in REFUSED else "failed"
                    answer.message = f"HTTP {reply.status}: {(await reply.text())[:200]}"
                    return answer
                async for line in reply.content:
                    if (event := self._event(line)) is not None:
                        self._read(event, answer, time.perf_counter())
        except (aiohttp.ClientError, ValueError, KeyError, TypeError) as error:
            answer.problem, answer.message = "failed", f"{type(error).__name__}: {error}"[:200]
        return answer

    def _event(self, line: bytes) -> dict[str, Any] | None:
        """The JSON object in a line of a stream, None if it has none. Raises ValueError for anything else."""
        return event_of(line)

    @abstractmethod
    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        """Path and body of the request."""

    @abstractmethod
    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        """Note in `answer` what an event of the stream says, which came at `time_s`."""

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Raises GgpyError if there is no such reply."""
        try:
            async with self._http.request(method, self.url + path, json=body) as reply:
                if reply.status == 200:
                    return await reply.json()
                raise GgpyError(f"{self.url}{path}: HTTP {reply.status}: {(await reply.text())[:200]}")
        except (aiohttp.ClientError, OSError) as error:
            raise GgpyError(f"{self.url}{path}: {why_no_answer(error)}") from error
        except ValueError as error:
            raise GgpyError(f"{self.url}{path}: the reply is not JSON: {error}") from error


class LlamaServer(Server):
    """llama-server's own API, POST /completion, which tells tokens and what was cached."""

    lacks: tuple[str, ...] = ("preemptions",)

    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        return "/completion", {"prompt": prompt, "n_predict": n_output, "temperature": 0.0, "ignore_eos": True,
                               "cache_prompt": True, "stream": True, "response_fields": ["timings", "stop"]}

    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        if "error" in event:
            answer.problem, answer.message = "failed", str(event["error"])[:200]
        if tokens := event.get("tokens"):
            answer.arrived(tokens, time_s)
        if "timings" in event:
            answer.n_cached = event["timings"]["cache_n"]


class OpenAIServer(Server):
    """POST /v1/completions, as many servers have it; it tells no token ids, so later turns repeat other answers."""

    lacks: tuple[str, ...] = ("token ids", "preemptions")

    def __init__(self, url: str, name: str | None = None, api_key: str | None = None, model: str = "default") -> None:
        super().__init__(url, name, api_key)
        self._model = model

    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        return "/v1/completions", {
            "model": self._model, "prompt": prompt, "max_tokens": n_output, "temperature": 0.0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}

    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        if "error" in event:
            answer.problem, answer.message = "failed", str(event["error"])[:200]
        if any(choice["finish_reason"] is None or choice["text"] for choice in event.get("choices", ())):
            answer.times_s.append(time_s)
            answer.n_tokens += 1
        if usage := event.get("usage"):
            answer.n_tokens = usage["completion_tokens"]
            answer.n_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def event_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line of server-sent events, None if it has none. Raises ValueError for anything else."""
    data = line.removeprefix(b"data:").strip()
    if not line.startswith(b"data:") or data == b"[DONE]":
        return None
    event = json.loads(data)
    if not isinstance(event, dict):
        raise ValueError(f"expected a JSON object, found {shown(event)}")
    return event
