"""What Ollama's answers have in common: lines of JSON, errors, times in nanoseconds."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from ggpy.engine.probabilities import TokenProbability
from ggpy.errors import RequestError
from ggpy.server.errors import ErrorInfo
from ggpy.server.jobs.generation import Answer
from ggpy.server.jobs.probabilities import probability_objects
from ggpy.server.ollama.cards import rfc3339
from ggpy.server.web import sse
from ggpy.server.web.fields import Fields, read_json
from ggpy.text import Tokenizer

NDJSON = "application/x-ndjson"

Line = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def ollama_body(info: ErrorInfo) -> Line:
    """An error as Ollama tells it."""
    return {"error": info.message}


async def read_body(request: web.Request) -> Fields:
    """The JSON object in the body. Raises RequestError, also if there is no body, and TooLargeError."""
    value = await read_json(request)
    if value is None:
        raise RequestError("missing request body")
    if not isinstance(value, dict):
        raise RequestError("the body is not a JSON object")
    return Fields(value)


def encoded(line: Line) -> bytes:
    return _encode(line) + b"\n"


async def respond(request: web.Request, lines: AsyncGenerator[Line, None]) -> web.StreamResponse:
    """Send `lines` as they come. An error before the first has a status of its own, a later one is the last line."""
    async def frames() -> AsyncGenerator[bytes, None]:
        async with aclosing(lines):
            async for line in lines:
                yield encoded(line)

    return await sse.send_frames(request, frames(), error_frame=lambda info: encoded(ollama_body(info)),
                                 content_type=NDJSON, ping=None)


def now() -> str:
    return rfc3339(time.time())


@dataclass(slots=True)
class Stopwatch:
    """How long a request takes, from its arrival on."""

    start_s: float = field(default_factory=time.perf_counter)
    loaded_s: float = 0.0           # when the model was there

    def model_is_there(self) -> None:
        self.loaded_s = time.perf_counter()

    def durations(self) -> dict[str, int]:
        """Of the whole, and of loading; neither is 0."""
        return {"total_duration": nanoseconds(time.perf_counter() - self.start_s),
                "load_duration": nanoseconds(self.loaded_s - self.start_s)}

    def metrics(self, answer: Answer) -> dict[str, int]:
        """What the last line of an answer tells.

        The time of the first token is that of the prompt; so that tokens and their time give the speed, the answer's
        time is that of as many tokens as there are.
        """
        timings, n = answer.timings(), len(answer.tokens)
        answer_s = timings["predicted_ms"] / 1e3 * (n / (n - 1) if n > 1 else 1)
        return {**self.durations(), "prompt_eval_count": answer.n_prompt,
                "prompt_eval_duration": nanoseconds(timings["prompt_ms"] / 1e3), "eval_count": n,
                "eval_duration": nanoseconds(answer_s)}


def nanoseconds(seconds: float) -> int:
    return max(1, round(seconds * 1e9))


def logprob_objects(found: Sequence[TokenProbability], tokenizer: Tokenizer) -> list[Line]:
    """Log probabilities of tokens as Ollama has them."""
    objects = probability_objects(list(found), tokenizer, is_post=False)
    for one in objects:
        for item in (one, *one["top_logprobs"]):
            del item["id"]
    return objects
