"""What requests to Ollama's /api/chat and /api/generate have in common: how they are read and made a prompt."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from ggpy.engine.config import MAX_COUNT
from ggpy.engine.request import ContextShift
from ggpy.errors import RequestError
from ggpy.made import with_parameters
from ggpy.server.chat.core import ChatRequest, PreparedChat, prepare
from ggpy.server.chat.template_options import template_variables
from ggpy.server.context import Server
from ggpy.server.errors import ContextSizeError
from ggpy.server.jobs.generation import Job
from ggpy.server.model_pool.answer_memory import AnswerMemory
from ggpy.server.model_pool.models import Entry, LoadedModel
from ggpy.server.ollama.answer import head
from ggpy.server.ollama.lines import Line, Stopwatch
from ggpy.server.ollama.messages import Message, kept_from, shortenings
from ggpy.server.ollama.options import (
    NUM_KEEP,
    apply_keep_alive,
    default_params,
    read_format,
    read_keep_alive,
    read_options,
    read_probabilities,
    read_think,
)
from ggpy.server.settings import ServerSettings
from ggpy.server.web.fields import Fields
from ggpy.server.web.origins import check_origin, is_foreign
from ggpy.server.web.replies import json_response
from ggpy.text import ChatTemplate
from ggpy.text.go_to_jinja import jinja_of

MAX_CONTEXTS = 10       # of tokens, that an answer without an end has at most
MAX_TEMPLATES = 8       # of requests, that are kept for each model
LONG_TEMPLATE = 2**16   # characters; longer ones are not kept

_templated: WeakKeyDictionary[LoadedModel, dict[str, LoadedModel]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says beside its prompt."""

    name: str                       # of the model, as the request has it
    job: Job                        # without the prompt
    limit: int                      # tokens of prompt and answer
    n_keep: int                     # tokens at the beginning that stay whatever goes
    variables: dict[str, Any]       # of the template
    is_cut: bool                    # a prompt that is too long is made shorter
    settings: ServerSettings


def read_asked(fields: Fields, name: str, entry: Entry, model: LoadedModel, server: Server, what: str) -> Asked:
    """Read it. Raises RequestError, also where the model cannot do what is asked for, such as to `what`."""
    if model.ready.is_encoder:
        raise RequestError(f'"{name}" does not support {what}')
    options = read_options(fields, entry)
    n_ctx = options.get("num_ctx", 0)
    limit = min(model.n_ctx, n_ctx) if n_ctx > 1 else model.n_ctx
    params = with_parameters(default_params(model.defaults), options)
    shift, n_keep = None, min(max(options.get("num_keep", NUM_KEEP), 0), limit // 2)
    if fields.boolean("shift", default=True) and limit == model.n_ctx:
        shift = ContextShift(n_keep)
        most = min(MAX_CONTEXTS * limit, MAX_COUNT)
        params = dataclasses.replace(params, max_tokens=min(params.max_tokens or most, most))
    job = Job(tokens=(), params=params, constraint=read_format(fields) or server.settings.constraint,
              probabilities=read_probabilities(fields), context_shift=shift, uses_cache=server.settings.cache_prompt)
    return Asked(name=name, job=job, limit=limit, n_keep=n_keep, settings=server.settings,
                 variables=think_variables(fields, name, model, server.settings),
                 is_cut=fields.boolean("truncate", default=True))


def think_variables(fields: Fields, name: str, model: LoadedModel, settings: ServerSettings) -> dict[str, Any]:
    """The template's variables by `think`. Raises RequestError if the model has no reasoning to be asked for."""
    think = read_think(fields)
    if think and not model.answer_style.has_reasoning:
        raise RequestError(f'"{name}" does not support thinking')
    variables = template_variables(Fields({}), settings)
    if think is not None:
        variables["enable_thinking"] = think is not False
    if isinstance(think, str):
        is_harmony = "<|channel|>" in model.chat_template.source
        variables["reasoning_effort"] = "high" if think == "max" and is_harmony else think
    return variables


async def prepared(model: LoadedModel, asked: Asked, messages: Sequence[Message],
                   tools: Sequence[Any] = ()) -> PreparedChat:
    """The chat, without its oldest messages where it is too long. Raises RequestError and TemplateError."""
    settings = asked.settings
    budget = settings.reasoning_budget
    request = ChatRequest(
        messages=messages, job=asked.job, tools=tools, variables=asked.variables,
        continuation="auto" if settings.prefill_assistant else "never", reasoning_format="deepseek",
        reasoning_tokens=None if budget < 0 else budget, reasoning_message=settings.reasoning_budget_message)
    chat = await prepare(model, request, must_fit=not asked.is_cut)
    if chat.n_tokens >= asked.limit and asked.is_cut:
        chat = await shortened(model, request, asked.limit) or chat
    return dataclasses.replace(chat, job=limited(dataclasses.replace(chat.job, tokens=cut(chat.job.tokens, asked)),
                                                 asked.limit))


async def shortened(model: LoadedModel, request: ChatRequest, limit: int) -> PreparedChat | None:
    """The chat with as few of its messages left out as it takes; None if none are few enough."""
    choices = shortenings(request.messages)
    low, high, best = 0, len(choices), None
    while low < high:
        middle = (low + high) // 2
        chat = await prepare(model, dataclasses.replace(request, messages=kept_from(request.messages, choices[middle])),
                             must_fit=False)
        if chat.n_tokens < limit:
            best, high = chat, middle
        else:
            low = middle + 1
    return best


def cut(tokens: Sequence[int], asked: Asked) -> list[int]:
    """`tokens`; of too many that may be cut, the first few and the last, with a quarter of the room for the answer."""
    if len(tokens) < asked.limit or not asked.is_cut:
        return list(tokens)
    n_most = asked.limit - max(1, asked.limit // 4)
    n_keep = min(asked.n_keep, n_most - 1)
    return [*tokens[:n_keep], *tokens[len(tokens) - (n_most - n_keep) :]]


def limited(job: Job, limit: int) -> Job:
    """`job`, which ends where the context does that the request wants. Raises ContextSizeError."""
    n_left = limit - len(job.tokens)
    if n_left <= 0:
        raise ContextSizeError(len(job.tokens), limit)
    if job.context_shift is not None:
        return job
    most = n_left if job.params.max_tokens is None else min(job.params.max_tokens, n_left)
    return dataclasses.replace(job, params=dataclasses.replace(job.params, max_tokens=most))


def wanted_keep_s(request: web.Request, fields: Fields, server: Server) -> float | None:
    """What `keep_alive` says, which a page of another site has no say in. Raises FieldError."""
    seconds = read_keep_alive(fields)
    return None if is_foreign(request, server.settings) else seconds


async def load_or_unload(request: web.Request, server: Server, entry: Entry, name: str, keep_s: float | None,
                         extra: Line) -> web.Response:
    """The reply to a request without a prompt, which loads the model, or lets it go with keep_alive 0.

    Raises ForbiddenError for a page of another site.
    """
    check_origin(request, server.settings, changes_server=True)
    watch = Stopwatch()
    if keep_s == 0:
        entry.keep_s = 0.0
        if not entry.n_users:
            await server.models.unload(entry, "sleeping" if server.models.is_single else "unloaded")
        return json_response({**head(name), **extra, "done": True, "done_reason": "unload"})
    apply_keep_alive(entry, keep_s, entry.idle_s(server.settings))
    async with server.models.use(entry.name, autoload=True):
        watch.model_is_there()
    return json_response({**head(name), **extra, "done": True, "done_reason": "load", **watch.durations()})


def with_template(model: LoadedModel, template: str) -> LoadedModel:
    """The same model, which writes conversations by `template`, a Modelfile's. Raises TemplateError."""
    known = _templated.setdefault(model, {})
    if template in known:
        return known[template]
    text = copy.copy(model.text)
    text.chat_template = ChatTemplate.from_source(jinja_of(template), model.tokenizer, key="template")
    changed = dataclasses.replace(model, text=text, answers=AnswerMemory())     # what it said was written otherwise
    _ = changed.answer_style        # rendering tells what it is, which takes a while
    if len(template) <= LONG_TEMPLATE:
        while len(known) >= MAX_TEMPLATES:
            known.pop(next(iter(known)), None)
        known[template] = changed
    return changed
