"""What completions of llama-server and OpenAI have in common: how they are read, and replies in the former's shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.server.context import Server
from ggpy.server.errors import llama_body
from ggpy.server.jobs.generation import Answer, Job
from ggpy.server.jobs.job_fields import read_job, read_n_probs
from ggpy.server.jobs.job_settings import full_settings, settings_object
from ggpy.server.jobs.probabilities import probability_objects
from ggpy.server.jobs.sampling_fields import read_constraint
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web import sse
from ggpy.server.web.fields import Fields


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


def read_jobs(server: Server, model: LoadedModel, fields: Fields,
              prompts: Sequence[Sequence[int]]) -> tuple[list[Job], CompletionOptions]:
    """What to generate for each of `prompts`, and what to tell of it. Raises RequestError."""
    job, reply = read_job(fields, server.settings, model, constraint=read_constraint(fields),
                           probabilities=read_n_probs(fields, "n_probs", "logprobs"))
    short = settings_object(job.params, reply)
    jobs = [replace(job, tokens=tokens, first_index=i * job.n, settings=short) for i, tokens in enumerate(prompts)]
    return jobs, CompletionOptions(
        reply.is_stream, fields.boolean("return_tokens", default=False),
        job.tells_progress, reply.has_timings,
        job.probabilities, fields.texts("response_fields"),
        full_settings(short, job.params, job.constraint, model.tokenizer))


def final_object(model: LoadedModel, answer: Answer, options: CompletionOptions) -> dict[str, Any]:
    """The whole reply, or the end of a stream, which has told text and tokens already."""
    is_told = options.is_stream
    whole = {
        "index": answer.index, "content": "" if is_told else answer.text,
        "tokens": answer.tokens if options.returns_tokens and not is_told else [], "id_slot": answer.task.slot_id,
        "stop": True, "model": model.name, "tokens_predicted": len(answer.tokens), "tokens_evaluated": answer.n_prompt,
        "generation_settings": options.settings, "prompt": prompt_text(model, answer, options),
        "has_new_line": answer.task.has_new_line, "truncated": answer.is_truncated, "stop_type": answer.stop_type,
        "stopping_word": answer.stopping_word, "tokens_cached": len(answer.computed_tokens),
        "timings": answer.timings(),
    }
    if options.probabilities is not None and not is_told:
        whole["completion_probabilities"] = probability_objects(
            answer.probabilities, model.tokenizer, is_post=options.probabilities.after_sampling)
    return picked(whole, options.fields)


def prompt_text(model: LoadedModel, answer: Answer, options: CompletionOptions) -> str:
    """The prompt as it was read; "" if it is not told."""
    is_told = not options.fields or "prompt" in options.fields
    return model.tokenizer.decode(answer.task.prompt) if is_told else ""


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
