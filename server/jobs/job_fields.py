"""Reads what llama-server's completions and chats have in common beside the prompt."""

from __future__ import annotations

from typing import Any

from ggpy.backends.base import Scales
from ggpy.engine.config import MAX_COUNT
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.engine.request import ContextShift
from ggpy.server.errors import FieldError
from ggpy.server.jobs.generation import Job
from ggpy.server.jobs.job_settings import ReplySettings
from ggpy.server.jobs.sampling_fields import read_sampling
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.settings import ServerSettings
from ggpy.server.web.fields import Fields

MAX_PROBS = 1000        # alternatives of a token
MAX_SCALES = 4096       # of one request's adapters


def read_ping_s(fields: Fields, settings: ServerSettings) -> int:
    """After how long a silence a stream has a sign of life; negative: never."""
    return fields.integer("sse_ping_interval", default=settings.sse_ping_s, least=-1)


def read_job(fields: Fields, settings: ServerSettings, model: LoadedModel, *, constraint: ConstraintSpec | None,
             probabilities: ProbabilitySpec | None) -> tuple[Job, ReplySettings]:
    """What to generate for prompts that are still to come, and what settings objects tell beside. Raises RequestError.

    `settings` of the job are left to the caller.
    """
    params = read_sampling(fields, model.defaults, model.tokenizer)
    max_ms = fields.integer("t_max_predict_ms", default=-1, least=-1)
    slot = fields.integer("id_slot", default=-1)
    adapters = lora_scales(fields)
    reply = ReplySettings(
        is_stream=fields.boolean("stream", default=False),
        n_keep=fields.integer("n_keep", default=settings.n_keep, least=-1, most=MAX_COUNT),
        n_discard=fields.integer("n_discard", default=0, least=0, most=MAX_COUNT),
        n_probs=0 if probabilities is None else probabilities.n_top,
        is_after_sampling=probabilities is not None and probabilities.after_sampling,
        has_timings=fields.boolean("timings_per_token", default=False), adapters=adapters or ())
    job = Job(
        tokens=(), params=params, constraint=constraint or settings.constraint, probabilities=probabilities,
        n=fields.integer("n_cmpl", "n", default=1, least=1, most=settings.n_slots), adapters=adapters,
        context_shift=context_shift(reply, settings, model), keeps_prompt=reply.n_keep < 0,
        tells_progress=reply.is_stream and fields.boolean("return_progress", default=False),
        uses_cache=fields.boolean("cache_prompt", default=settings.cache_prompt),
        slot=slot if 0 <= slot < settings.n_slots else None, max_predict_s=max_ms / 1e3 if max_ms > 0 else None,
        n_indent=fields.integer("n_indent", default=0, least=0, most=MAX_COUNT))
    return job, reply


def read_n_probs(fields: Fields, *names: str) -> ProbabilitySpec | None:
    """The probabilities that are told of each token; None if there are none to tell."""
    n = fields.integer(*names, default=0, least=0, most=MAX_PROBS)
    return ProbabilitySpec(n, after_sampling=fields.boolean("post_sampling_probs", default=False)) if n else None


def context_shift(reply: ReplySettings, settings: ServerSettings, model: LoadedModel) -> ContextShift | None:
    """What goes when the context is full; None: the answer ends there."""
    if not settings.has_context_shift:
        return None
    return ContextShift(max(0, reply.n_keep) + (1 if model.tokenizer.add_bos else 0), reply.n_discard)


def lora_scales(fields: Fields) -> Scales | None:
    """What field `lora` says of each adapter; those that it does not name get nothing. None: as is usual."""
    value = fields.array("lora")
    return None if value is None else read_scales(value)


def read_scales(value: list[Any]) -> Scales:
    """Adapters and their scales. Raises FieldError."""
    if len(value) > MAX_SCALES:
        raise FieldError("lora", f"{len(value):,} scales are too many; expected {MAX_SCALES:,} at most")
    scales = []
    for item in Fields({"lora": value}).objects("lora"):
        adapter = item.integer("id")
        if adapter is None:
            raise item.missing("id")
        scales.append((adapter, item.number("scale", default=0.0)))
    return tuple(scales)
