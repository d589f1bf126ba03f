"""From a request that a dialect has read to its answers, as they come."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from ggpy.backends.base import Scales
from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.messages import Generate, Tokens
from ggpy.engine.prefix_tree import MissCause
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.engine.request import ContextShift
from ggpy.server.errors import ContextSizeError
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.model_pool.slots import Task

DEFAULT_PARAMS = SamplingParams()
MAX_UNREAD = 64         # deltas of several jobs that wait for their reader

T = TypeVar("T")
StopType = Literal["none", "eos", "limit", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to generate."""

    tokens: Sequence[int]                       # the prompt
    params: SamplingParams = DEFAULT_PARAMS
    constraint: ConstraintSpec | None = None
    probabilities: ProbabilitySpec | None = None        # what to tell of each token
    n: int = 1                                  # answers
    first_index: int = 0                        # of the answers, which count up
    uses_cache: bool = True
    adapters: Scales | None = None              # how much of each LoRA adapter; None: as is usual
    context_shift: ContextShift | None = None
    keeps_prompt: bool = False                  # all of it stays when the context is shifted
    tells_progress: bool = False                # deltas without tokens tell how far the prompt is read
    keeps: tuple[tuple[int, float], ...] = ()   # so many tokens of the prompt are evicted last for so many seconds
    slot: int | None = None                     # that it shall have
    settings: Any = None                        # what /slots shows of it
    max_predict_s: float | None = None          # after so long the answer ends at the next newline
    n_indent: int = 0                           # a line of less indentation ends the answer


@dataclass(eq=False)
class Answer:
    """One answer, as far as it is."""

    index: int
    n_prompt: int
    n_ctx: int
    task: Task
    start_s: float = field(default_factory=time.perf_counter)      # when its prompt was begun, once that is known
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    probabilities: list[TokenProbability] = field(default_factory=list)     # of the tokens, if they were asked for
    n_cached: int = 0
    cache_miss: MissCause | None = None         # why it was no more; None: not yet known
    n_read: int = 0                             # tokens of the prompt that are there
    first_s: float | None = None                # when the first token came
    last_s: float | None = None
    stop_type: StopType = "none"
    stopping_word: str = ""
    is_finished: bool = False
    n_drafted: int = 0
    n_accepted: int = 0

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        return "length" if self.stop_type == "limit" else "stop"

    @property
    def is_truncated(self) -> bool:
        """Whether the context was full."""
        n_tokens = self.n_prompt + len(self.tokens)
        return n_tokens > self.n_ctx or (n_tokens == self.n_ctx and self.stop_type == "limit")

    @property
    def computed_tokens(self) -> list[int]:
        """Prompt and answer but for its last token, which nobody reads."""
        return [*self.task.prompt, *self.tokens[:-1]]

    def cached(self) -> dict[str, Any]:
        """OpenAI's object about the cache; `cache_miss`, why it had no more, is a member beside its own."""
        found: dict[str, Any] = {"cached_tokens": self.n_cached}
        return found if self.cache_miss is None else {**found, "cache_miss": self.cache_miss}

    def progress(self, n_read: int) -> dict[str, Any]:
        """llama-server's object about how far the prompt is read."""
        return {"total": self.n_prompt, "cache": self.n_cached, "processed": n_read,
                "time_ms": int((time.perf_counter() - self.start_s) * 1e3)}

    def timings(self) -> dict[str, Any]:
        """llama-server's object: the first token comes out of the prompt's pass."""
        n_read, n_more = max(0, self.n_read - self.n_cached), max(0, len(self.tokens) - 1)
        now = time.perf_counter()
        prompt_ms = ((self.first_s or now) - self.start_s) * 1e3 if n_read else 0.0
        predicted_ms = 0.0 if self.first_s is None else ((self.last_s or now) - self.first_s) * 1e3
        timings: dict[str, Any] = {
            "cache_n": self.n_cached, "prompt_n": n_read, "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / n_read if n_read else 0.0,
            "prompt_per_second": 1e3 * n_read / prompt_ms if prompt_ms > 0 else 0.0,
            "predicted_n": len(self.tokens), "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / n_more if n_more else 0.0,
            "predicted_per_second": 1e3 * n_more / predicted_ms if n_more and predicted_ms > 0 else 0.0,
        }
        if self.n_drafted:
            timings |= {"draft_n": self.n_drafted, "draft_n_accepted": self.n_accepted}
        return timings


@dataclass(frozen=True, slots=True)
class Delta:
    """What came to an answer. The answer itself may be further already."""

    answer: Answer
    text: str = ""
    tokens: tuple[int, ...] = ()
    probabilities: tuple[TokenProbability, ...] = ()
    is_last: bool = False       # nothing more comes to this answer
    n_generated: int = 0        # tokens up to here
    n_read: int = 0             # of the prompt


async def generate(model: LoadedModel, job: Job) -> AsyncGenerator[Delta, None]:
    """The answers to `job` as they come. Closing the generator cancels what is left.

    Raises ContextSizeError for a prompt that does not fit, and whatever the engine does.
    """
    n_ctx = model.n_ctx
    if len(job.tokens) >= n_ctx:
        raise ContextSizeError(len(job.tokens), n_ctx)
    answers = [Answer(job.first_index + i, len(job.tokens), n_ctx,
                      Task(job.tokens, job.slot, job.settings, job.params.max_tokens)) for i in range(job.n)]
    if not job.tokens:
        for answer in answers:
            answer.is_finished = True
            yield Delta(answer, is_last=True)
        return
    for answer in answers:
        model.slots.enter(answer.task)
    try:
        shift = job.context_shift
        if shift is not None and job.keeps_prompt:
            shift = replace(shift, n_keep=shift.n_keep + len(job.tokens))
        salt = answers[0].task.salt if job.uses_cache else new_salt()
        request = Generate(prompt_tokens=job.tokens, params=job.params, n=job.n, constraint=job.constraint,
                           salt=salt, probabilities=job.probabilities, adapters=job.adapters, context_shift=shift,
                           tells_progress=job.tells_progress, keeps=job.keeps)
        async with aclosing(model.client.generate(request)) as events:
            async for event in events:
                answer = answers[event.index]
                if answer.is_finished:      # it was ended here
                    continue
                take(answer, event, model, job)
                yield Delta(answer, event.text, event.tokens, event.probabilities, answer.is_finished,
                            len(answer.tokens), answer.n_read)
                if answer.is_finished and all(answer.is_finished for answer in answers):
                    return
    finally:
        for answer in answers:
            model.slots.leave(answer.task, answer.computed_tokens if job.uses_cache else ())
            if model.recorder is not None:
                model.recorder.add(answer.start_s, job.tokens, answer.tokens)


def new_salt() -> int:
    """One under which nothing is stored yet."""
    return secrets.randbits(62) | 1


def take(answer: Answer, event: Tokens, model: LoadedModel, job: Job) -> None:
    """Add `event` to `answer`."""
    task = answer.task
    answer.tokens += event.tokens
    answer.text += event.text
    answer.probabilities += event.probabilities
    if event.admitted_s is not None:
        answer.start_s = event.admitted_s
    answer.n_cached = task.n_cached = event.num_cached
    if event.miss is not None:
        answer.cache_miss = event.miss.cause
    if event.tokens:
        answer.last_s = event.time_s
        if answer.first_s is None:
            answer.first_s = event.time_s
    answer.n_drafted, answer.n_accepted = event.num_drafted, event.num_accepted
    answer.n_read = answer.n_prompt if event.num_read is None else event.num_read
    task.n_computed, task.n_decoded = answer.n_read, len(answer.tokens)
    task.has_new_line = task.has_new_line or "\n" in event.text
    if event.finish_reason is not None:
        answer.is_finished = True
        answer.stop_type, answer.stopping_word = why_ended(answer, event, model, job)
    elif "\n" in event.text and is_over(answer, job):
        answer.is_finished, answer.stop_type = True, "limit"


def why_ended(answer: Answer, event: Tokens, model: LoadedModel, job: Job) -> tuple[StopType, str]:
    """Why the engine ended an answer, and the stop string if it was one."""
    if event.finish_reason == "length":
        return "limit", ""
    if answer.tokens and answer.tokens[-1] in model.tokenizer.eog_ids:
        return "eos", ""
    if not job.params.stop:
        return "eos", ""
    tail = model.tokenizer.decode(answer.tokens, unparse_special=model.shows_special)[len(answer.text):]
    found = [(tail.find(stop) + len(stop), stop) for stop in job.params.stop if stop in tail]
    return ("word", min(found)[1]) if found else ("eos", "")


def is_over(answer: Answer, job: Job) -> bool:
    """Whether an answer that just wrote a newline ends by the request's own rules."""
    if job.max_predict_s is not None and answer.first_s is not None \
            and time.perf_counter() - answer.first_s > job.max_predict_s:
        return True
    if not job.n_indent:
        return False
    line = answer.text.rpartition("\n")[2]
    return bool(line.strip()) and len(line) - len(line.lstrip(" \t")) < job.n_indent


async def complete(model: LoadedModel, job: Job) -> list[Answer]:
    """The answers to `job`, when all of them are there."""
    answers: dict[int, Answer] = {}
    async with aclosing(generate(model, job)) as deltas:
        async for delta in deltas:
            answers[delta.answer.index] = delta.answer
    return [answers[i] for i in sorted(answers)]


async def complete_all(model: LoadedModel, jobs: Sequence[Job]) -> list[Answer]:
    """The answers to several jobs at once, in order; the first that fails ends the others."""
    tasks = [asyncio.create_task(complete(model, job)) for job in jobs]
    try:
        return [answer for answers in await asyncio.gather(*tasks) for answer in answers]
    finally:
        await cancel_all(tasks)


async def generate_all(model: LoadedModel, jobs: Sequence[Job]) -> AsyncGenerator[Delta, None]:
    """The answers to several jobs at once, as they come; the first that fails ends the others."""
    async with aclosing(merge_streams([generate(model, job) for job in jobs])) as deltas:
        async for delta in deltas:
            yield delta


async def merge_streams(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """What `streams` bring, as it comes; the first that fails ends the others."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as items:
            async for item in items:
                yield item
        return
    queue: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue(MAX_UNREAD)

    async def pump(stream: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(stream) as items:
                async for item in items:
                    await queue.put((item,))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    n_live = len(tasks)
    try:
        while n_live:
            found = await queue.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                n_live -= 1
            else:
                yield found[0]
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """End `tasks` and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
