"""OpenAI's completions of texts: /v1/completions.

What llama-server reads on its own route is read here too. Of `best_of` answers to a prompt those `n` are told that have
the highest mean logarithm of their tokens' probabilities. `echo` puts the prompt in front of the text, and with
`logprobs` its tokens in front of the answer's; with it `max_tokens` may be 0. `suffix` asks for what stands between
prompt and suffix, of a model that has learned that.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.completion import CompletionOptions, error_frame, final_object, read_jobs
from ggpy.server.jobs.generation import Answer, Delta, Job, complete_all, generate_all
from ggpy.server.jobs.infill import infill_tokens
from ggpy.server.jobs.job_fields import read_ping_s
from ggpy.server.jobs.prompts import read_prompts
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.model_pool.slots import Task
from ggpy.server.openai.completion_logprobs import LogprobArrays, prompt_probabilities
from ggpy.server.web import lanes, sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import FINGERPRINT, json_response
from ggpy.server.web.routes import Route
from ggpy.text import Tokenizer


def routes(server: Server) -> list[Route]:
    """/v1/completions."""
    async def completions(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            prompts = await asyncio.to_thread(read_texts, server, fields, model)
            wanted = await lanes.read(read_request, server, model, fields, prompts)
            if not wanted.options.is_stream:
                return json_response(await whole(model, wanted))
            ping_s = read_ping_s(fields, server.settings)
            return await sse.send_frames(request, events(model, wanted), error_frame=error_frame, ping_s=ping_s)

    return [Route("POST", "/v1/completions", completions)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One of a request's prompts."""

    tokens: list[int]
    text: str           # what `echo` repeats
    n_added: int        # tokens in front that the vocabulary put there: no part of the text


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    prompts: list[Prompt]
    jobs: list[Job]                     # one for each prompt
    options: CompletionOptions
    n: int                              # choices of a prompt
    best_of: int                        # answers of a prompt that they are taken from
    has_echo: bool
    is_echo_alone: bool                 # nothing is generated
    has_usage_event: bool
    is_verbose: bool
    head: dict[str, Any] = field(default_factory=dict)      # of every object of the reply

    @property
    def n_top(self) -> int | None:
        """Alternatives to tell of each token; None: nothing about probabilities."""
        return None if self.options.probabilities is None else self.options.probabilities.n_top


def read_texts(server: Server, fields: Fields, model: LoadedModel) -> list[Prompt]:
    """The prompts of a request, with their suffix around the gap if there is one. Raises RequestError."""
    n_ctx = None if fields.boolean("echo", default=False) else model.n_ctx
    lists, is_list = read_prompts(fields, "prompt", model.tokenizer, n_ctx=n_ctx)
    given = fields.get("prompt") if is_list else [fields.get("prompt")]
    suffix = fields.text("suffix")
    if suffix:
        return [Prompt(gap_tokens(server, fields, model, item, suffix), item, 0) for item in given]
    return [prompt_of(item, tokens, model.tokenizer) for item, tokens in zip(given, lists, strict=True)]


def prompt_of(given: Any, tokens: list[int], tokenizer: Tokenizer) -> Prompt:
    """A prompt as the client gave it."""
    n_added = int(isinstance(given, str) and tokenizer.add_bos and tokens[:1] == [tokenizer.bos_id])
    return Prompt(tokens, given if isinstance(given, str) else tokenizer.decode(tokens), n_added)


def gap_tokens(server: Server, fields: Fields, model: LoadedModel, prefix: Any, suffix: str) -> list[int]:
    """A prompt that asks for what stands between `prefix` and `suffix`."""
    if not isinstance(prefix, str):
        raise fields.error("prompt", "expected a string, or an array of strings, as there is a suffix")
    try:
        return infill_tokens(Fields({"input_prefix": prefix, "input_suffix": suffix}), model.tokenizer,
                             n_ctx=model.n_ctx, n_batch=server.settings.n_batch, n_predict=None,
                             is_spm=server.settings.is_spm_infill)
    except NotSupportedError as error:      # a client would send it again
        raise fields.error("suffix", str(error)) from error


def read_request(server: Server, model: LoadedModel, fields: Fields, prompts: list[Prompt]) -> Wanted:
    """What `fields` asks for. Raises RequestError."""
    jobs, options = read_jobs(server, model, fields, [prompt.tokens for prompt in prompts])
    n, most = jobs[0].n if jobs else 1, server.settings.n_slots
    best_of = fields.integer("best_of", default=n, least=1, most=most)
    if best_of < n:
        raise fields.error("best_of", f"expected {n} at least, as many as are to be told (n), found {best_of}")
    if best_of > n and options.is_stream:
        raise fields.error("best_of", f"a stream cannot tell which of {best_of} answers are the best {n}; ask for it "
                                      "without `stream`, or leave out `best_of`")
    if "logprobs" in fields:        # 0: those of the tokens alone
        n_top = fields.integer("logprobs", default=0, least=0)
        is_post = fields.boolean("post_sampling_probs", default=False)
        options = replace(options, probabilities=ProbabilitySpec(n_top, after_sampling=is_post))
    has_echo = fields.boolean("echo", default=False)
    if has_echo and options.probabilities is not None:
        for name in ("suffix", "lora"):
            if fields.get(name):
                raise fields.error(name, "it does not go with both `echo` and `logprobs`")
    spec = options.probabilities or (ProbabilitySpec() if best_of > n else None)
    jobs = [replace(job, n=best_of, first_index=i * best_of, probabilities=spec) for i, job in enumerate(jobs)]
    wants_none = has_echo and fields.integer("n_predict", "max_completion_tokens", "max_tokens") == 0
    head = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()),
            "model": model.name, "system_fingerprint": FINGERPRINT}
    return Wanted(prompts, jobs, options, n, best_of, has_echo, wants_none,
                  fields.nested("stream_options").boolean("include_usage", default=False),
                  server.settings.is_verbose, head)


async def echoed(model: LoadedModel, wanted: Wanted) -> list[list[TokenProbability]]:
    """What is told of each prompt's tokens."""
    if not wanted.has_echo or wanted.n_top is None:
        return [[] for _ in wanted.prompts]
    return [(await prompt_probabilities(model, prompt.tokens, wanted.n_top))[prompt.n_added:]
            for prompt in wanted.prompts]


def empty_answers(model: LoadedModel, jobs: Sequence[Job]) -> list[Answer]:
    """Answers for which nothing is generated."""
    return [Answer(job.first_index + i, len(job.tokens), model.n_ctx, Task(job.tokens), stop_type="limit",
                   is_finished=True) for job in jobs for i in range(job.n)]


async def whole(model: LoadedModel, wanted: Wanted) -> dict[str, Any]:
    """The reply in one piece."""
    prompts = await echoed(model, wanted)
    answers = empty_answers(model, wanted.jobs) if wanted.is_echo_alone else await complete_all(model, wanted.jobs)
    choices: list[dict[str, Any]] = []
    chosen: list[Answer] = []
    for i, prompt in enumerate(wanted.prompts):
        for answer in best(answers[i * wanted.best_of : (i + 1) * wanted.best_of], wanted.n):
            choices.append(choice(len(choices), (prompt.text if wanted.has_echo else "") + answer.text,
                                  answer.finish_reason, logprobs(model, wanted, prompts[i] + answer.probabilities)))
            chosen.append(answer)
    reply = {**wanted.head, "choices": choices, "usage": usage(answers, wanted.best_of)}
    if chosen and not wanted.is_echo_alone:
        reply["timings"] = chosen[0].timings()
        if wanted.is_verbose:
            reply["__verbose"] = final_object(model, chosen[0], wanted.options)
    return reply


def best(answers: Sequence[Answer], n: int) -> list[Answer]:
    """The `n` most probable answers by the mean of their tokens, best first; all as they are if there are no more."""
    if len(answers) <= n:
        return list(answers)

    def rank(answer: Answer) -> float:
        return sum(one.logprob for one in answer.probabilities) / max(1, len(answer.probabilities))

    return sorted(answers, key=rank, reverse=True)[:n]


def logprobs(model: LoadedModel, wanted: Wanted, found: Sequence[TokenProbability],
             arrays: LogprobArrays | None = None) -> dict[str, Any] | None:
    """The member `logprobs` of a choice."""
    if wanted.options.probabilities is None or not found:
        return None
    return (arrays or LogprobArrays(model.tokenizer)).object(found, is_post=wanted.options.probabilities.after_sampling)


def choice(index: int, text: str, finish_reason: str | None, found: dict[str, Any] | None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": found, "finish_reason": finish_reason}


def usage(answers: Sequence[Answer], n: int) -> dict[str, Any]:
    """The tokens of all `answers`, of which `n` after each other share a prompt."""
    firsts = answers[::n]
    n_prompt, n_generated = sum(one.n_prompt for one in firsts), sum(len(one.tokens) for one in answers)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_generated, "total_tokens": n_prompt + n_generated,
            "prompt_tokens_details": {"cached_tokens": sum(one.n_cached for one in firsts)}}


async def events(model: LoadedModel, wanted: Wanted) -> AsyncGenerator[bytes, None]:
    """The events of a stream. Each choice ends with one that has no text."""
    arrays = [LogprobArrays(model.tokenizer) for _ in range(len(wanted.jobs) * wanted.n)]
    answers: dict[int, Answer] = {}
    if wanted.has_echo:
        prompts = await echoed(model, wanted)
        for i, array in enumerate(arrays):
            found = logprobs(model, wanted, prompts[i // wanted.n], array)
            yield sse.frame({**wanted.head, "choices": [choice(i, wanted.prompts[i // wanted.n].text, None, found)]})
    if wanted.is_echo_alone:
        for answer in empty_answers(model, wanted.jobs):
            answers[answer.index] = answer
            yield sse.frame(final_event(model, answer, wanted))
    else:
        async with aclosing(generate_all(model, wanted.jobs)) as deltas:
            async for delta in deltas:
                answers[delta.answer.index] = delta.answer
                told = delta_events(model, delta, wanted, arrays[delta.answer.index])
                if data := b"".join(map(sse.frame, told)):
                    yield data
    if wanted.has_usage_event:
        ordered = [answers[i] for i in sorted(answers)]
        yield sse.frame({**wanted.head, "choices": [], "usage": usage(ordered, wanted.n)})
    yield sse.DONE


def delta_events(model: LoadedModel, delta: Delta, wanted: Wanted, arrays: LogprobArrays) -> list[dict[str, Any]]:
    """What a stream tells of `delta`."""
    answer, found = delta.answer, []
    timings = {"timings": answer.timings()} if wanted.options.has_timings else {}
    if delta.tokens or delta.text:
        arrays_of_delta = logprobs(model, wanted, delta.probabilities, arrays)
        found.append({**wanted.head, "choices": [choice(answer.index, delta.text, None, arrays_of_delta)], **timings})
    elif wanted.options.returns_progress and not delta.is_last:
        found.append({**wanted.head, "choices": [choice(answer.index, "", None, None)],
                      "prompt_progress": answer.progress(delta.n_read), **timings})
    if delta.is_last:
        found.append(final_event(model, answer, wanted))
    return found


def final_event(model: LoadedModel, answer: Answer, wanted: Wanted) -> dict[str, Any]:
    """The end of a choice. It has its own usage, as llama-server's has, unless an event has that of all."""
    event = {**wanted.head, "choices": [choice(answer.index, "", answer.finish_reason, None)]}
    if not wanted.has_usage_event:
        event["usage"] = usage([answer], 1)
    if not wanted.is_echo_alone:
        event["timings"] = answer.timings()
        if wanted.is_verbose:
            event["__verbose"] = final_object(model, answer, wanted.options)
    return event
