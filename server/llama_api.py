"""llama-server's own dialect: completion and infill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.server import lanes, sse
from ggpy.server.context import Server
from ggpy.server.errors import llama_body
from ggpy.server.fields import Fields, read_fields
from ggpy.server.generation import Answer, Delta, Job, complete_all, generate_all
from ggpy.server.infill import infill_tokens
from ggpy.server.job_fields import read_job, read_n_probs
from ggpy.server.llama_settings import full_settings, settings_object
from ggpy.server.models import LoadedModel
from ggpy.server.probabilities import probability_objects
from ggpy.server.prompts import read_prompts
from ggpy.server.replies import json_response
from ggpy.server.routes import Route
from ggpy.server.sampling_fields import read_constraint, read_max_tokens


def routes(server: Server) -> list[Route]:
    """/completion, not OpenAI's, and /infill."""
    async def completion(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            prompts, is_list = await asyncio.to_thread(read_prompts, fields, "prompt", model.tokenizer)
            return await respond(request, server, model, fields, prompts, is_list=is_list)

    async def infill(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            n_predict = read_max_tokens(fields, model.defaults.max_tokens)
            tokens = await asyncio.to_thread(
                infill_tokens, fields, model.tokenizer, n_ctx=model.n_ctx, n_batch=server.settings.n_batch,
                n_predict=n_predict, is_spm=server.settings.is_spm_infill)
            return await respond(request, server, model, fields, [tokens], is_list=False)

    return [Route("POST", "/completion", completion), Route("POST", "/completions", completion),
            Route("POST", "/infill", infill)]


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """What a request wants of its reply."""

    is_stream: bool
    returns_tokens: bool
    returns_progress: bool
    has_timings: bool           # in each event
    probabilities: ProbabilitySpec | None       # of tokens
    fields: list[str]           # of the final object; []: all
    settings: dict[str, Any]    # generation_settings


async def respond(request: web.Request, server: Server, model: LoadedModel, fields: Fields,
                  prompts: Sequence[Sequence[int]], *, is_list: bool) -> web.StreamResponse:
    """Complete `prompts` as `fields` wants it."""
    jobs, options = await lanes.read(read_jobs, server, model, fields, prompts)
    if options.is_stream:
        ping_s = fields.integer("sse_ping_interval", default=server.settings.sse_ping_s, least=-1)
        return await sse.respond(request, events(model, jobs, options), error_frame=error_frame, ping_s=ping_s)
    answers = await complete_all(model, jobs)
    results = [final_object(model, answer, options) for answer in answers]
    return json_response(results if is_list or len(results) > 1 else results[0])


def read_jobs(server: Server, model: LoadedModel, fields: Fields,
              prompts: Sequence[Sequence[int]]) -> tuple[list[Job], CompletionOptions]:
    """What to generate for each of `prompts`, and what to tell of it. Raises RequestError."""
    job, others = read_job(fields, server.settings, model, constraint=read_constraint(fields),
                           probabilities=read_n_probs(fields, "n_probs", "logprobs"))
    short = settings_object(job.params, others)
    jobs = [replace(job, tokens=tokens, first_index=i * job.n, settings=short) for i, tokens in enumerate(prompts)]
    return jobs, CompletionOptions(
        others["stream"] is True, fields.boolean("return_tokens", default=False),
        job.tells_progress, others["timings_per_token"] is True,
        job.probabilities, fields.texts("response_fields"),
        full_settings(job.params, job.constraint, model.tokenizer, others))


async def events(model: LoadedModel, jobs: Sequence[Job], options: CompletionOptions) -> AsyncGenerator[bytes, None]:
    """The events of a stream; there is no [DONE]."""
    async with aclosing(generate_all(model, jobs)) as deltas:
        async for delta in deltas:
            if not delta.tokens and not delta.is_last and options.returns_progress:
                yield sse.frame(progress_object(delta, options))
            for part in parts(delta, options):
                yield sse.frame(partial_object(part, model, options))
            if delta.is_last:
                yield sse.frame(final_object(model, delta.answer, options))


def parts(delta: Delta, options: CompletionOptions) -> list[Delta]:
    """`delta` for each of its tokens if their probabilities are told, which clients expect one at a time."""
    if not delta.tokens:
        return []
    if options.probabilities is None:
        return [delta]
    last = len(delta.tokens) - 1
    return [Delta(delta.answer, delta.text if i == last else "", (token,), (probability,),
                  n_generated=delta.n_generated - last + i)
            for i, (token, probability) in enumerate(zip(delta.tokens, delta.probabilities, strict=True))]


def progress_object(delta: Delta, options: CompletionOptions) -> dict[str, Any]:
    """An event that tells how far the prompt is read."""
    answer = delta.answer
    event = {"index": answer.index, "content": "", "tokens": [], "stop": False, "id_slot": -1, "tokens_predicted": 0,
             "tokens_evaluated": answer.n_prompt, "prompt_progress": answer.progress(delta.n_read)}
    return {**event, "timings": answer.timings()} if options.has_timings else event


def partial_object(delta: Delta, model: LoadedModel, options: CompletionOptions) -> dict[str, Any]:
    """An event of a stream."""
    answer = delta.answer
    event = {"index": answer.index, "content": delta.text, "tokens": list(delta.tokens), "stop": False, "id_slot": -1,
             "tokens_predicted": delta.n_generated, "tokens_evaluated": answer.n_prompt}
    if options.has_timings:
        event["timings"] = answer.timings()
    if options.probabilities is not None:
        event["completion_probabilities"] = probability_objects(
            list(delta.probabilities), model.tokenizer, is_post=options.probabilities.after_sampling)
    return event


def final_object(model: LoadedModel, answer: Answer, options: CompletionOptions) -> dict[str, Any]:
    """The whole reply, or the end of a stream, which has told text and tokens already."""
    is_told = options.is_stream
    whole = {
        "index": answer.index, "content": "" if is_told else answer.text,
        "tokens": answer.tokens if options.returns_tokens and not is_told else [], "id_slot": answer.task.slot_id,
        "stop": True, "model": model.name, "tokens_predicted": len(answer.tokens), "tokens_evaluated": answer.n_prompt,
        "generation_settings": options.settings, "prompt": model.tokenizer.decode(answer.task.prompt),
        "has_new_line": answer.task.has_new_line, "truncated": answer.is_truncated, "stop_type": answer.stop_type,
        "stopping_word": answer.stopping_word, "tokens_cached": len(answer.computed_tokens),
        "timings": answer.timings(),
    }
    if options.probabilities is not None and not is_told:
        whole["completion_probabilities"] = probability_objects(
            answer.probabilities, model.tokenizer, is_post=options.probabilities.after_sampling)
    return picked(whole, options.fields)


def picked(whole: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The `fields` of `whole`, all if there are none; "a/b" is what b is in a."""
    if not fields:
        return whole
    chosen = {}
    for path in fields:
        value: Any = whole
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            chosen[path] = value
    return chosen


def error_frame(info: Any) -> bytes:
    """An error behind the first event."""
    return sse.frame(llama_body(info))
