"""Chats: from messages and tools to answers taken apart, for every dialect that has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from ggpy.engine.probabilities import TokenProbability
from ggpy.server.chat.answer_meaning import same_answers
from ggpy.server.chat.constraint import ToolChoice, answer_constraint, check_choice, check_left_out
from ggpy.server.chat.messages import Continuation, template_messages
from ggpy.server.chat.reader import AnswerReader
from ggpy.server.chat.reasoning import ReasoningLimit, ReasoningSwitch, read_limited
from ggpy.server.chat.template_options import takes_tools, tools_for_template
from ggpy.server.jobs.generation import Answer, Delta, Job, generate, merge_streams
from ggpy.server.jobs.prompts import check_length
from ggpy.server.model_pool.models import LoadedModel
from ggpy.text import ChatPrompt, tool_calls
from ggpy.text.reasoning import ReasoningFormat
from ggpy.text.tool_calls import AnswerStyle, Event, ToolFormat

logger = logging.getLogger("ggpy")

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for.

    Messages and tools are those of OpenAI's API. `job` has all but the prompt: sampling, n, the slot and so on; its
    constraint is on the content, so it holds behind reasoning, and calls of tools are free of it.
    """

    messages: Sequence[Mapping[str, Any]]
    job: Job
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    parses_tool_calls: bool = True              # else calls stay in the content
    variables: Mapping[str, Any] = field(default_factory=dict)      # of the template, such as enable_thinking
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continuation: Continuation = "auto"         # of the last message, if it is the assistant's
    reasoning_format: ReasoningFormat = "auto"
    reasoning_tokens: int | None = None         # reasoning is ended after so many tokens
    reasoning_message: str = ""                 # what it ends with then
    switch: ReasoningSwitch | None = None       # ends reasoning from outside

    @property
    def is_off(self) -> bool:
        """Whether the model shall not think."""
        return self.variables.get("enable_thinking") is False or self.reasoning_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChat:
    """A request in the model's own terms."""

    request: ChatRequest
    prompt: ChatPrompt
    job: Job
    style: AnswerStyle
    tool_format: ToolFormat | None      # that calls are read in
    is_open: bool                       # whether the prompt has begun reasoning

    @property
    def n_tokens(self) -> int:
        """Of the prompt."""
        return len(self.job.tokens)

    @property
    def limit(self) -> ReasoningLimit | None:
        """Of reasoning; None if it may go on."""
        request = self.request
        if request.reasoning_tokens is None and request.switch is None:
            return None
        return ReasoningLimit(request.reasoning_message + self._reasoning_end, request.reasoning_tokens, request.switch)

    @property
    def _reasoning_end(self) -> str:
        """What stands behind reasoning: where calls may follow, it leaves that open."""
        around = self.style.tool_format.call_reasoning
        if self.request.tools and around is not None:
            return around[1]
        return self.style.reasoning.end

    def reader(self, model: LoadedModel) -> AnswerReader:
        """What takes one answer apart."""
        return AnswerReader(model.tokenizer, self.style, self.tool_format, self.request.tools,
                            reasoning_format=self.request.reasoning_format, is_open=self.is_open,
                            is_closed=self.prompt.text.rstrip().endswith(self.style.reasoning.end),
                            has_controls=model.shows_special)


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """What came to an answer. `events` may be empty: text is held back, or the prompt is still read."""

    answer: Answer
    events: tuple[Event, ...] = ()
    tokens: tuple[int, ...] = ()
    probabilities: tuple[TokenProbability, ...] = ()        # of tokens that say something: no reasoning, no end
    is_last: bool = False                       # nothing more comes to this answer
    finish_reason: FinishReason | None = None   # in the last one
    n_generated: int = 0                        # tokens up to here
    n_read: int = 0                             # tokens of the prompt that are read
    n_reasoning: int = 0                        # tokens of reasoning up to here


@dataclass(slots=True)
class ChatAnswer:
    """A whole answer."""

    answer: Answer
    parsed: tool_calls.ParsedAnswer = field(default_factory=tool_calls.ParsedAnswer)    # content, reasoning, calls
    finish_reason: FinishReason = "stop"
    n_reasoning: int = 0                        # tokens of reasoning
    probabilities: list[TokenProbability] = field(default_factory=list)     # of the others but the end


async def prepare(model: LoadedModel, request: ChatRequest, *, must_fit: bool = True) -> PreparedChat:
    """The prompt of `request` and how its answers are read. Raises RequestError and TemplateError.

    With `must_fit`, it raises ContextSizeError for a prompt that is far longer than the context; others that do not fit
    are for `stream_chat` to refuse.
    """
    return await asyncio.to_thread(_prepare, model, request, must_fit)


def render(model: LoadedModel, request: ChatRequest) -> tuple[ChatPrompt, bool]:
    """The conversation as the model reads it, and whether reasoning is open at its end.

    A template that opens reasoning although it is off has it closed again. Raises RequestError and TemplateError.
    """
    messages, continued = template_messages(request.messages, model.chat_template, request.continuation)
    tools, variables = tools_for_template(request.tools, request.variables, model)
    prompt = model.chat_template.prompt(
        messages, model.tokenizer, tools=tools, documents=request.documents, chat_template_kwargs=variables,
        add_generation_prompt=request.add_generation_prompt and continued is None,
        continue_final_message=continued or False)
    tags = model.answer_style.reasoning
    is_open = continued == "reasoning_content" or tags.is_open(prompt.text)
    if is_open and request.is_off:
        return replace(prompt, text=prompt.text + tags.closing(request.reasoning_message)), False
    return prompt, is_open


def _prepare(model: LoadedModel, request: ChatRequest, must_fit: bool) -> PreparedChat:
    check_choice(request.tools, request.tool_choice)
    if request.tools and not takes_tools(model):        # the model would not see them
        check_left_out(request.tools, request.tool_choice, model.name)
        warn_of_tools(model.name)
        request = replace(request, tools=(), tool_choice="auto")
    prompt, is_open = render(model, request)
    if must_fit:
        check_length(prompt.text, model.tokenizer, model.n_ctx)
    style = model.answer_style
    has_calls = bool(request.tools) and request.tool_choice != "none" and request.parses_tool_calls
    constraint = answer_constraint(request.job.constraint, style, is_open=is_open, is_off=request.is_off,
                                   tools=request.tools, choice=request.tool_choice,
                                   is_parallel=request.parallel_tool_calls)
    return PreparedChat(
        request=request, prompt=prompt, style=style, is_open=is_open,
        job=replace(request.job, tokens=prompt_tokens(model, request, prompt), constraint=constraint),
        tool_format=style.tool_format if has_calls or style.tool_format.reads_reasoning else None)


@cache
def warn_of_tools(model: str) -> None:
    """Say once that `model` gets no tools."""
    logger.warning("%s: its chat template does not write tools, so requests that bring some are answered without them",
                   model)


def prompt_tokens(model: LoadedModel, request: ChatRequest, prompt: ChatPrompt) -> list[int]:
    """The tokens of `prompt`, in which answers of the model's stand as it wrote them, for so they are in the cache."""
    tokens = prompt.encode(model.tokenizer)
    if not request.job.uses_cache:
        return tokens
    is_same = same_answers(model.tokenizer, model.answer_style, request.tools)
    return model.answers.restored(tokens, model.tokenizer.eog_ids, is_same)


def remember(model: LoadedModel, chat: PreparedChat, answer: Answer) -> None:
    """Have `prompt_tokens` find an answer that has ended. One that a stop string cut is not what the client got."""
    if chat.job.uses_cache and answer.stop_type in ("eos", "limit"):
        is_ended = answer.tokens[-1:] and answer.tokens[-1] in model.tokenizer.eog_ids
        model.answers.add(chat.job.tokens, answer.tokens[:-1] if is_ended else answer.tokens, is_open=chat.is_open)


async def stream_chat(model: LoadedModel, chat: PreparedChat) -> AsyncGenerator[ChatDelta, None]:
    """The answers as they come. Closing the generator cancels what is left. Raises what `generate` does."""
    readers = [chat.reader(model) for _ in range(chat.job.n)]
    limit = chat.limit
    if limit is None:
        pairs = read_all(model, chat.job, readers)
    else:
        pairs = merge_streams([
            read_limited(model, replace(chat.job, n=1, first_index=chat.job.first_index + i), reader, limit)
            for i, reader in enumerate(readers)])
    async with aclosing(pairs):
        async for delta, events in pairs:
            reader = readers[delta.answer.index - chat.job.first_index]
            if delta.is_last:
                remember(model, chat, delta.answer)
            yield _chat_delta(delta, events, reader)


async def read_all(model: LoadedModel, job: Job,
                   readers: Sequence[AnswerReader]) -> AsyncGenerator[tuple[Delta, list[Event]], None]:
    """The answers to `job` as they come, and their events."""
    async with aclosing(generate(model, job)) as deltas:
        async for delta in deltas:
            yield delta, readers[delta.answer.index - job.first_index].read(delta)


def _chat_delta(delta: Delta, events: Sequence[Event], reader: AnswerReader) -> ChatDelta:
    reason: FinishReason | None = None
    if delta.is_last:
        reason = delta.answer.finish_reason
        if reason == "stop" and reader.has_calls:
            reason = "tool_calls"
    return ChatDelta(delta.answer, tuple(events), delta.tokens, reader.probabilities(), delta.is_last, reason,
                     delta.n_generated, delta.n_read, reader.n_reasoning)


async def complete_chat(model: LoadedModel, chat: PreparedChat) -> list[ChatAnswer]:
    """The answers when all of them are there."""
    answers: dict[int, ChatAnswer] = {}
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            answer = answers.setdefault(delta.answer.index, ChatAnswer(delta.answer))
            for event in delta.events:
                answer.parsed.add(event)
            answer.probabilities += delta.probabilities
            if delta.finish_reason is not None:
                answer.finish_reason, answer.n_reasoning = delta.finish_reason, delta.n_reasoning
    return [answers[index] for index in sorted(answers)]
