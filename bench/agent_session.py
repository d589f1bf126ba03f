"""A session of an agent through the official clients, and how much of each prompt the server reuses.

An agent sends its whole history with every step. `replay` plays one: a long system prompt, tools, results of various
sizes, questions of the user, an old result that is cleared, and a fork.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import anthropic
import openai

from ggpy.engine.messages import Generate, Tokens
from ggpy.engine.prefix_node import common_tokens, to_key
from ggpy.server.model_pool.models import LoadedModel

RULES = ("read a file before you change it, and say what you found.",
         "run the tests after each change; a change without a test is not done.",
         "use the tools one at a time and wait for what they answer.",
         "never guess the name of a file: list the folder first.")
PATH = {"type": "string", "maxLength": 40}
TOOLS: dict[str, dict[str, Any]] = {
    "list_folder": {"path": PATH}, "read_file": {"path": PATH, "line": {"type": "integer"}},
    "run_tests": {"path": PATH, "is_verbose": {"type": "boolean"}},
}
RESULTS = (
    "{}.py: ok", "def f_{0}(x):\n    return x + {0}\n" * 4, "src/{0}.py\nsrc/té st_{0}.py\nREADME.md",
    "{{\"passed\": {0}, \"failed\": 0}}", "line {0}: unexpected indent\n" * 10,
)
N_STEPS = 30

Kind = Literal["task", "result", "question", "edit", "fork"]


@dataclass(frozen=True, slots=True)
class Move:
    """What an agent does before it asks the model."""

    kind: Kind
    text: str           # of the user, or of a tool
    has_calls: bool     # whether the model is to call a tool then
    target: int = 0     # the step whose result is cleared, or behind whose answer the session forks


def session() -> list[Move]:
    """The moves of N_STEPS steps."""
    def move(i: int) -> Move:
        text, has_calls = RESULTS[i % len(RESULTS)].format(i), i not in (9, 18, N_STEPS - 1)
        if i == 0:
            return Move("task", "Find the test that fails and mend the code.", has_calls)
        if i in (10, 19):
            return Move("question", f"Good. What about src/{i}.py?", has_calls)
        if i == 14:
            return Move("edit", text, has_calls, target=11)
        if i == 23:
            return Move("fork", text, has_calls, target=20)
        return Move("result", text, has_calls)

    return [move(i) for i in range(N_STEPS)]


@dataclass(slots=True)
class Reply:
    """What a client got."""

    message: dict[str, Any]     # as it goes into the history
    calls: list[str]            # their ids
    n_prompt: int
    n_cached: int
    miss: str                   # why it was no more, as the server tells it


@dataclass(slots=True)
class Turn:
    """A step that is over."""

    incoming: list[dict[str, Any]]
    reply: Reply


class Agent(ABC):
    """An agent that speaks one of the APIs. `model` is what the server calls the model.

    Its system prompt has `n_rules` rules, an answer `max_tokens` tokens at most.
    """

    name: str

    def __init__(self, model: str, *, n_rules: int, max_tokens: int) -> None:
        self.model, self.max_tokens = model, max_tokens
        self.system = f"You are a careful programmer who uses {self.name}. " + " ".join(
            f"Rule {i + 1}: {RULES[i % len(RULES)]}" for i in range(n_rules))
        self.turns: list[Turn] = []

    def step(self, move: Move) -> Reply:
        """Make a move and ask the model."""
        if move.kind == "edit":
            for message in self.turns[move.target].incoming:
                self.clear(message)
        if move.kind == "fork":
            del self.turns[move.target + 1 :]
        calls = self.turns[-1].reply.calls if self.turns else []
        is_result = bool(calls) and move.kind not in ("task", "question")
        incoming = self.results(calls, move.text) if is_result else [{"role": "user", "content": move.text}]
        history = [message for turn in self.turns for message in (*turn.incoming, turn.reply.message)]
        reply = self.ask([*history, *incoming], has_calls=move.has_calls)
        self.turns.append(Turn(incoming, reply))
        return reply

    @abstractmethod
    def results(self, calls: Sequence[str], text: str) -> list[dict[str, Any]]:
        """Messages with `text` as the result of `calls`."""

    @abstractmethod
    def clear(self, message: dict[str, Any]) -> None:
        """Take the text of results out."""

    @abstractmethod
    def ask(self, messages: list[Any], *, has_calls: bool) -> Reply:
        """What the model says to `messages`."""


class OpenAIAgent(Agent):
    """Replies in one piece."""

    name = "openai"

    def __init__(self, client: openai.OpenAI, model: str, *, n_rules: int = 80, max_tokens: int = 120) -> None:
        super().__init__(model, n_rules=n_rules, max_tokens=max_tokens)
        self.client = client

    def results(self, calls: Sequence[str], text: str) -> list[dict[str, Any]]:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call in calls]

    def clear(self, message: dict[str, Any]) -> None:
        message["content"] = "[cleared]"

    def ask(self, messages: list[Any], *, has_calls: bool) -> Reply:
        tools: Any = [{"type": "function", "function": {
            "name": name, "description": f"To {name}.", "parameters": schema(fields)}}
            for name, fields in TOOLS.items()]
        completion = self.client.chat.completions.create(
            model=self.model, max_tokens=self.max_tokens, tools=tools,
            messages=[{"role": "system", "content": self.system}, *messages],
            tool_choice="required" if has_calls else "none", parallel_tool_calls=False)
        message, usage = completion.choices[0].message, completion.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        details: Any = usage.prompt_tokens_details.model_extra or {}
        return Reply(message.to_dict(), [call.id for call in message.tool_calls or []], usage.prompt_tokens,
                     usage.prompt_tokens_details.cached_tokens or 0, details["cache_miss"])


class AnthropicAgent(Agent):
    """Replies in streams; the system prompt and the end of the history are to be kept."""

    name = "anthropic"

    def __init__(self, client: anthropic.Anthropic, model: str, *, n_rules: int = 80, max_tokens: int = 120) -> None:
        super().__init__(model, n_rules=n_rules, max_tokens=max_tokens)
        self.client = client

    def results(self, calls: Sequence[str], text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call, "content": text} for call in calls]}]

    def clear(self, message: dict[str, Any]) -> None:
        for block in message["content"]:
            block["content"] = "[cleared]"

    def ask(self, messages: list[Any], *, has_calls: bool) -> Reply:
        tools: Any = [{"name": name, "description": f"To {name}.", "input_schema": schema(fields)}
                      for name, fields in TOOLS.items()]
        with self.client.messages.stream(
                model=self.model, max_tokens=self.max_tokens, messages=messages, tools=tools,
                system=[{"type": "text", "text": self.system, "cache_control": {"type": "ephemeral"}}],
                tool_choice={"type": "any", "disable_parallel_tool_use": True} if has_calls else {"type": "none"}
        ) as stream:
            message = stream.get_final_message()
        usage = message.usage
        n_cached = usage.cache_read_input_tokens or 0
        n_prompt = usage.input_tokens + n_cached + (usage.cache_creation_input_tokens or 0)
        return Reply({"role": "assistant", "content": message.content},
                     [block.id for block in message.content if block.type == "tool_use"], n_prompt, n_cached, "")


def schema(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


class Recorder:
    """Notes what a model's engine reads and writes, from `start` on."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.sequences: list[tuple[list[int], list[int]]] = []      # prompt and answer
        self.misses: list[str] = []

    def wrapped(self, generate: Callable[[Generate], AsyncGenerator[Tokens, None]]
                ) -> Callable[[Generate], AsyncGenerator[Tokens, None]]:
        """`generate`, noted."""
        async def noted(request: Generate) -> AsyncGenerator[Tokens, None]:
            answer: list[int] = []
            self.sequences.append(([*request.prompt_tokens], answer))
            async with aclosing(generate(request)) as events:
                async for event in events:
                    answer += event.tokens
                    if event.miss is not None:
                        self.misses.append(event.miss.cause)
                    yield event

        return noted


@dataclass(slots=True)
class Row:
    """How much of a step's prompt was reused."""

    step: int
    kind: Kind
    n_prompt: int
    n_true: int         # tokens, from the first on, that a prompt and its answer before had in common with it
    n_cached: int
    miss: str           # why it was no more
    note: str = ""      # what is different from the step before it

    @property
    def share(self) -> float:
        return self.n_cached / self.n_prompt


@dataclass(slots=True)
class Replay:
    """A session that was played."""

    agent: str
    rows: list[Row] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of all tokens of prompts, that were reused."""
        return sum(row.n_cached for row in self.rows) / sum(row.n_prompt for row in self.rows)

    def table(self) -> str:
        """A line for each step."""
        lines = [f"{self.agent}: {self.share:.1%} of the prompts' tokens were reused",
                 " step  move      prompt    true  cached   share  cause"]
        lines += [f"{row.step:5}  {row.kind:8}{row.n_prompt:8}{row.n_true:8}{row.n_cached:8}{row.share:8.1%}  "
                  f"{row.miss}{'; ' if row.note else ''}{row.note}" for row in self.rows]
        return "\n".join(lines)


def replay(agent: Agent, recorder: Recorder, moves: Sequence[Move]) -> Replay:
    """Play `moves`; `recorder` notes what the engine does meanwhile, and all that it did before."""
    found = Replay(agent.name)
    for i, move in enumerate(moves):
        n_before = len(recorder.sequences)
        reply = agent.step(move)
        prompt = recorder.sequences[n_before][0]
        assert len(prompt) == reply.n_prompt, "the client is told of the tokens that were read"
        earlier = [[*tokens, *answer[:-1]] for tokens, answer in recorder.sequences[:n_before]]
        n_true = max((common(prompt, tokens) for tokens in earlier), default=0)
        note = difference(recorder.model, prompt, earlier[-1]) if i and move.kind not in ("edit", "fork") else ""
        found.rows.append(Row(i, move.kind, reply.n_prompt, n_true, reply.n_cached, recorder.misses[-1], note))
    return found


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return common_tokens(to_key(one), to_key(other))


def difference(model: LoadedModel, prompt: Sequence[int], before: Sequence[int]) -> str:
    """Where `prompt` does not go on with what was read and written `before`; "" if it does."""
    n = common(prompt, before)
    if n == len(before):
        return ""
    written, sent = (model.tokenizer.decode(tokens[n : n + 8]) for tokens in (before, prompt))
    return f"the model wrote {written!r}, the prompt has {sent!r} at {n}"


def scripted(moves: Sequence[Move]) -> Iterator[str]:
    """What a model that calls tools in the way of Hermes might write, in no way that a template would."""
    for i, move in enumerate(moves):
        calls = (
            f'<tool_call>\n{{"name":"list_folder","arguments":{{"path":"src/{i}"}}}}\n</tool_call>',
            f'I read it.\n<tool_call>\n{{"name": "read_file", "arguments": {{"line": {i}, "path": "t\\u00e9 st.py"}}}}'
            "\n</tool_call>",
            f'<tool_call>{{"name": "run_tests", "arguments": {{ "path": "tests/{i}", "is_verbose": true }} }}'
            "</tool_call>",
        )
        yield calls[i % len(calls)] if move.has_calls else f" The code of step {i} is right now.\n\n"
