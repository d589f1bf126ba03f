"""llama-server's own dialect: completion and infill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from ggpy.server.context import Server
from ggpy.server.jobs.completion import CompletionOptions, error_frame, final_object, read_jobs
from ggpy.server.jobs.generation import Delta, Job, complete_all, generate_all
from ggpy.server.jobs.infill import infill_tokens
from ggpy.server.jobs.job_fields import read_ping_s
from ggpy.server.jobs.probabilities import probability_objects
from ggpy.server.jobs.prompts import read_prompts
from ggpy.server.jobs.sampling_fields import read_max_tokens
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web import lanes, sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/completion, not OpenAI's, and /infill."""
    async def completion(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            prompts, is_list = await asyncio.to_thread(read_prompts, fields, "prompt", model.tokenizer,
                                                       n_ctx=model.n_ctx)
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


async def respond(request: web.Request, server: Server, model: LoadedModel, fields: Fields,
                  prompts: Sequence[Sequence[int]], *, is_list: bool) -> web.StreamResponse:
    """Complete `prompts` as `fields` wants it."""
    jobs, options = await lanes.read(read_jobs, server, model, fields, prompts)
    if options.is_stream:
        ping_s = read_ping_s(fields, server.settings)
        return await sse.send_frames(request, events(model, jobs, options), error_frame=error_frame, ping_s=ping_s)
    answers = await complete_all(model, jobs)
    results = [final_object(model, answer, options) for answer in answers]
    return json_response(results if is_list or len(results) > 1 else results[0])


async def events(model: LoadedModel, jobs: Sequence[Job], options: CompletionOptions) -> AsyncGenerator[bytes, None]:
    """The events of a stream; there is no [DONE]."""
    async with aclosing(generate_all(model, jobs)) as deltas:
        async for delta in deltas:
            found = [partial_object(part, model, options) for part in parts(delta, options)]
            if not delta.tokens and not delta.is_last and options.returns_progress:
                found.append(progress_object(delta, options))
            if delta.is_last:
                found.append(final_object(model, delta.answer, options))
            if found:
                yield b"".join(map(sse.frame, found))


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
