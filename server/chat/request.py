"""Reads chats as OpenAI's API has them, with llama-server's further fields.

Dialects make such a body of what they are sent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ggpy.engine.config import MAX_COUNT
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.errors import RequestError, shown
from ggpy.server.chat.constraint import ToolChoice, ToolName
from ggpy.server.chat.core import ChatRequest
from ggpy.server.chat.messages import Continuation
from ggpy.server.chat.reasoning import ReasoningSwitch
from ggpy.server.chat.template_options import template_variables
from ggpy.server.context import Server
from ggpy.server.jobs.generation import Job
from ggpy.server.jobs.job_fields import MAX_PROBS, read_job, read_n_probs
from ggpy.server.jobs.job_settings import ReplySettings, settings_object
from ggpy.server.jobs.sampling_fields import read_constraint, schema_constraint
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.settings import ServerSettings
from ggpy.server.web.fields import Fields
from ggpy.text.reasoning import ReasoningFormat
from ggpy.text.tool_calls import name_of

USUAL_PROBS = 20        # if a request does not say how many
REASONING_FORMATS: tuple[ReasoningFormat, ...] = ("auto", "none", "deepseek", "deepseek-legacy")


def read_chat(fields: Fields, server: Server, model: LoadedModel) -> ChatRequest:
    """The chat in a body. Raises RequestError; what is wrong with a message, `prepare` says."""
    settings = server.settings
    job, reply = read_job(fields, settings, model, constraint=read_format(fields),
                           probabilities=read_probabilities(fields))
    short = settings_object(job.params, with_reasoning(fields, settings, reply))
    return read_conversation(fields, settings, replace(job, settings=short))


def read_conversation(fields: Fields, settings: ServerSettings, job: Job) -> ChatRequest:
    """What a body says beside how tokens are chosen, which is in `job`."""
    messages = fields.array("messages")
    if messages is None:
        raise fields.missing("messages")
    tools, choice = read_tools(fields)
    if not settings.uses_jinja and (tools or choice != "auto"):
        raise RequestError(f"{'tools' if tools else 'tool_choice'} param requires --jinja flag")
    budget = fields.integer("reasoning_budget_tokens", "thinking_budget_tokens", default=-1, least=-1, most=MAX_COUNT)
    if budget < 0:
        budget = settings.reasoning_budget
    return ChatRequest(
        messages=messages, job=job, tools=tools, tool_choice=choice,
        parallel_tool_calls=fields.boolean("parallel_tool_calls", default=True),
        parses_tool_calls=settings.parses_chats and fields.boolean("parse_tool_calls", default=True),
        variables=template_variables(fields, settings), documents=fields.array("documents"),
        add_generation_prompt=fields.boolean("add_generation_prompt", default=True),
        continuation=read_continuation(fields, settings), reasoning_format=read_reasoning_format(fields, settings),
        reasoning_tokens=None if budget < 0 else budget,
        reasoning_message=fields.text("reasoning_budget_message", default=settings.reasoning_budget_message),
        switch=ReasoningSwitch() if fields.boolean("reasoning_control", default=False) else None)


def read_tools(fields: Fields) -> tuple[list[Any], ToolChoice]:
    """The tools that may be called, and which have to be."""
    tools = fields.array("tools") or []
    given = fields.get("tool_choice")
    if given is None:
        return tools, "auto"
    if isinstance(given, str):
        return tools, read_mode(fields, given)
    choice = fields.nested("tool_choice")
    if choice.text("type") == "allowed_tools":
        allowed = choice.nested("allowed_tools") if "allowed_tools" in choice else choice
        names = [name_of(tool) for tool in allowed.array("tools") or []]
        return [tool for tool in tools if name_of(tool) in names], read_mode(fields, allowed.text("mode"))
    function = choice.nested("function") if "function" in choice else choice
    name = function.text("name")
    if name is None:
        raise function.missing("name")
    return tools, ToolName(name)


def read_mode(fields: Fields, mode: str | None) -> Literal["auto", "none", "required"]:
    if mode in (None, "auto"):
        return "auto"
    if mode in ("any", "required"):
        return "required"
    if mode == "none":
        return "none"
    raise fields.error("tool_choice", f"Invalid tool_choice: {mode:.80}; expected auto, none, required or a function")


def read_continuation(fields: Fields, settings: ServerSettings) -> Continuation:
    """Whether a last message of the assistant is gone on with, and which part of it."""
    given = fields.get("continue_final_message")
    if given is True or given in ("content", "reasoning_content"):
        if fields.boolean("add_generation_prompt", default=False):
            raise RequestError("Cannot set both add_generation_prompt and continue_final_message to true.")
        return "auto" if given is True else given
    if given not in (None, False):
        raise fields.error("continue_final_message", 'expected a boolean, "content" or "reasoning_content"')
    return "auto" if settings.prefill_assistant else "never"


def read_reasoning_format(fields: Fields, settings: ServerSettings) -> ReasoningFormat:
    """Where reasoning is told."""
    name = fields.text("reasoning_format", default=settings.reasoning_format) if settings.parses_chats else "none"
    for known in REASONING_FORMATS:
        if name == known:
            return known
    raise fields.error("reasoning_format", f"expected one of {', '.join(REASONING_FORMATS)}, found {shown(name)}")


def read_format(fields: Fields) -> ConstraintSpec | None:
    """What the content has to be, by `response_format`, `json_schema` or `grammar`."""
    if "grammar" in fields and "json_schema" in fields:
        raise RequestError("Cannot use both json_schema and grammar")
    wanted = fields.nested("response_format")
    kind = wanted.text("type", default="text")
    if kind == "json_object":
        if "schema" not in wanted and fields.get("json_schema"):
            return read_constraint(fields)
        return schema_constraint(read_schema(wanted))
    if kind == "json_schema":
        return schema_constraint(read_schema(wanted.nested("json_schema")))
    if kind not in ("", "text"):
        raise wanted.error("type", 'response_format type must be one of "text", "json_object" or "json_schema", '
                                   f"but got: {kind:.80}")
    return read_constraint(fields)


def read_schema(fields: Fields) -> Any:
    schema = fields.get("schema")
    if schema is not None and not isinstance(schema, dict | bool):
        raise fields.error("schema", "expected an object")
    return {} if schema is None else schema


def read_probabilities(fields: Fields) -> ProbabilitySpec | None:
    """What is told of each token. `logprobs` is a boolean here, in llama-server's own dialect a number."""
    if not isinstance(fields.get("logprobs"), bool):
        if "top_logprobs" in fields:
            raise fields.error("top_logprobs", "top_logprobs requires logprobs to be set to true")
        return read_n_probs(fields, "n_probs", "logprobs")
    if not fields.boolean("logprobs", default=False):
        return read_n_probs(fields, "n_probs")
    n = fields.integer("top_logprobs", default=USUAL_PROBS, least=0, most=MAX_PROBS)
    return ProbabilitySpec(n, after_sampling=fields.boolean("post_sampling_probs", default=False))


def with_reasoning(fields: Fields, settings: ServerSettings, reply: ReplySettings) -> ReplySettings:
    """`told`, with where reasoning is."""
    name = read_reasoning_format(fields, settings)
    return replace(reply, reasoning_format="deepseek" if name == "auto" else name,
                   has_reasoning_in_content=name == "deepseek-legacy" and reply.is_stream)
