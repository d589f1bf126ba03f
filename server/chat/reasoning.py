"""Reasoning that goes on for long enough is ended: the answer goes on behind the tag that closes it.

The engine is asked again, with what there is so far as part of the prompt, which its cache has.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from ggpy.server.chat.reader import AnswerReader
from ggpy.server.jobs.generation import Answer, Delta, Job, generate
from ggpy.server.model_pool.models import LoadedModel
from ggpy.text import StreamDecoder
from ggpy.text.tool_calls import Event


class ReasoningSwitch:
    """Ends the reasoning of answers from outside."""

    def __init__(self) -> None:
        self.is_on = False


@dataclass(frozen=True, slots=True)
class ReasoningLimit:
    """When reasoning is ended, and by which text."""

    closing: str
    n_most: int | None = None           # tokens of it
    switch: ReasoningSwitch | None = None

    def is_reached(self, reader: AnswerReader) -> bool:
        is_long = self.n_most is not None and reader.n_reasoning >= self.n_most
        return reader.is_reasoning and (is_long or (self.switch is not None and self.switch.is_on))


async def read_limited(model: LoadedModel, job: Job, reader: AnswerReader,
                       limit: ReasoningLimit) -> AsyncGenerator[tuple[Delta, list[Event]], None]:
    """The one answer to `job` as it comes, and its events, with reasoning as short as `limit` has it."""
    whole: Answer | None = None
    part, n_drafts = job, (0, 0)
    while True:
        async with aclosing(generate(model, part)) as deltas:
            async for delta in deltas:
                if whole is None or part is job:
                    whole = delta.answer
                else:
                    delta = joined(whole, delta, n_drafts)
                yield delta, reader.read(delta)
                if delta.is_last:
                    return
                if limit.is_reached(reader):
                    break
        assert whole is not None
        yield close(whole, model, reader, limit)
        most = job.params.max_tokens
        if (most is not None and len(whole.tokens) >= most) or whole.n_prompt + len(whole.tokens) >= model.n_ctx:
            whole.is_finished, whole.stop_type = True, "limit"
            last = Delta(whole, is_last=True, n_generated=len(whole.tokens), n_read=whole.n_prompt)
            yield last, reader.read(last)
            return
        part, n_drafts = rest_of(job, whole, limit), (whole.n_drafted, whole.n_accepted)


def close(whole: Answer, model: LoadedModel, reader: AnswerReader, limit: ReasoningLimit) -> tuple[Delta, list[Event]]:
    """End the reasoning of `whole`, whose text may lag behind its tokens."""
    closing = model.tokenizer.encode(limit.closing, add_special=False, parse_special=True)
    decoder = StreamDecoder(model.tokenizer, special=model.shows_special)
    text = decoder.extend(whole.tokens)[len(whole.text):] + limit.closing
    whole.tokens += closing
    whole.text += text
    delta = Delta(whole, text, tuple(closing), n_generated=len(whole.tokens), n_read=whole.n_prompt)
    return delta, reader.insert(text)


def rest_of(job: Job, whole: Answer, limit: ReasoningLimit) -> Job:
    """What is left of `job` behind the reasoning of `whole`."""
    constraint = job.constraint
    if constraint is not None:      # that of the content holds from here on
        is_near = any(map(limit.closing.endswith, constraint.after))
        constraint = replace(constraint, reasoning=None, after=() if is_near else constraint.after)
    most, longest_s = job.params.max_tokens, job.max_predict_s
    params = job.params if most is None else replace(job.params, max_tokens=most - len(whole.tokens))
    if longest_s is not None and whole.first_s is not None:
        longest_s -= time.perf_counter() - whole.first_s
    return replace(job, tokens=[*job.tokens, *whole.tokens], params=params, constraint=constraint,
                   max_predict_s=longest_s, tells_progress=False)


def joined(whole: Answer, delta: Delta, n_drafts: tuple[int, int]) -> Delta:
    """`delta`, which goes on with `whole`, as part of it; `n_drafts` were drafted and accepted before it began."""
    part = delta.answer
    whole.tokens += delta.tokens
    whole.text += delta.text
    whole.probabilities += delta.probabilities
    whole.last_s = part.last_s or whole.last_s
    whole.n_drafted, whole.n_accepted = n_drafts[0] + part.n_drafted, n_drafts[1] + part.n_accepted
    whole.is_finished, whole.stop_type, whole.stopping_word = part.is_finished, part.stop_type, part.stopping_word
    return replace(delta, answer=whole, n_generated=len(whole.tokens), n_read=whole.n_prompt)
