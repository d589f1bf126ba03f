"""`ggpy run` at work: questions in, answers out, and Ctrl-C in between."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ggpy import config
from ggpy.errors import ConfigError, GgpyError, PromptTooLongError
from ggpy.text import ChatTemplate
from ggpy.tools import chat_commands, loading
from ggpy.tools.chat import Conversation
from ggpy.tools.chat_screen import CONTROLS, MarkdownOutput, PlainOutput, after_waiting, rich_console
from ggpy.tools.chat_settings import Settings
from ggpy.tools.keyboard import ctrl_c_calls, hidden_keys
from ggpy.tools.made_rows import preface_rows
from ggpy.tools.terminal import PIPED_WIDTH

if TYPE_CHECKING:
    from ggpy.engine.constraint import ConstraintSpec
    from ggpy.llm import LLM, Completion
    from ggpy.tools.chat_input import Input

# controls that JSON leaves as they are, though a terminal would obey them
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}

LONG_PROMPT = 512       # tokens that may take a second to read
MESSAGE_IS_LOST = "the message is not kept; /regen asks it again"


class Session:
    """A model and the person, or the script, that talks to it."""

    def __init__(self, llm: LLM, args: argparse.Namespace, model_name: str, template: ChatTemplate | None,
                 system: str, constraint: ConstraintSpec | None = None) -> None:
        self.llm = llm
        self.args = args
        self.model_name = model_name
        self.settings = Settings(args, llm.metadata, llm.tokenizer.n_vocab)
        self.chat = Conversation(llm, self.settings.params, template, system, args.chat_template_kwargs,
                                 constraint, () if llm.made is None else llm.made.messages)
        self.totals = Totals()
        self._is_rich = is_rich(args)
        self.is_markdown = self._is_rich and template is not None
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False, no_color=not has_color(args),
                                soft_wrap=not self._is_rich)
        self._is_conversation = False
        self.has_editing = False            # and a line of status

    def say(self, text: str) -> None:
        """Tell the user something that is not the model's."""
        self._console.print(text.translate(CONTROLS), style="dim" if self._is_rich else None)

    def say_rows(self, rows: Mapping[str, str]) -> None:
        """Tell the user names and what they stand for, in two columns; what does not fit goes on in the second."""
        indent = max(map(len, rows)) + 3
        width = self._console.width if self._is_rich else PIPED_WIDTH
        text = "\n".join(textwrap.fill(
            meaning, max(width - 1, indent + 10), initial_indent=f"{name:<{indent}}", subsequent_indent=" " * indent,
            break_long_words=False, break_on_hyphens=False) for name, meaning in rows.items())
        self._console.print(text.translate(CONTROLS), style="dim" if self._is_rich else None, soft_wrap=True)

    def show_markdown(self, choice: str) -> None:
        """Show answers as Markdown, "on", or as the model's own text, "off". Raises ConfigError."""
        if choice not in ("on", "off"):
            raise ConfigError(f"markdown={choice}: expected on or off; it is {'on' if self.is_markdown else 'off'}")
        if choice == "on" and not self._is_rich:
            raise ConfigError("markdown=on: answers are plain text here, because of the terminal or of a flag")
        self.is_markdown = choice == "on"

    def answer(self, question: str, without_answer: str = MESSAGE_IS_LOST) -> Completion:
        """Print the answer to a question. Raises PromptTooLongError and other GgpyErrors.

        Ctrl-C ends the answer, without waiting for the step that the model is in; outside of a conversation it is a
        KeyboardInterrupt then, as usual. Where it comes before the first word, `without_answer` says what follows.
        """
        loading.compile_samplers(self.llm, self.chat.params, is_constrained=self.chat.constraint is not None)
        with ctrl_c_calls(self.chat.stop), hidden_keys():
            answer = self.chat.ask(question, self._show_tokens if self.args.verbose_prompt else None)
            try:
                if self.args.json:
                    "".join(answer)
                else:
                    self._print(question, answer if self.args.stream else ["".join(answer)])
            finally:
                completion = self.chat.end()
            if self.chat.was_stopped and not self._is_conversation:
                self.chat.join()
                raise KeyboardInterrupt
        if completion.tokens:
            self.totals.add(completion)
        if self.args.json:
            print(json.dumps(as_json(completion), ensure_ascii=False).translate(JSON_ESCAPES), flush=True)
        elif self.args.show_timings and not self.has_editing and completion.finish_reason != "cancelled":
            print(timing_line(completion), file=sys.stderr, flush=True)
        self._say_how_it_ended(completion, without_answer)
        return completion

    def converse(self, first: str | None = None) -> None:
        """Answer `first`, then what the user types, until /bye or the end of input; once if `single_turn`."""
        self._is_conversation = True
        source = self._open_input()
        if sys.stdin.isatty() and not self.args.single_turn:
            self.say(f"{self.model_name}: {self.llm.n_ctx:,} tokens of context.")
            if self.chat.template is None:
                self.say(self._raw_hint())
            self.say("/help lists commands, Ctrl-C stops an answer, Ctrl-D or /bye leaves.")
        message = first
        try:
            while True:
                try:
                    if message is None:
                        message = source.read()
                    if message and self._respond(message) and self.args.single_turn:
                        return
                except KeyboardInterrupt:
                    with ctrl_c_calls(lambda: None):
                        # without editing, nobody knows whether something was typed
                        self.say("Ctrl-D or /bye leaves" if self.has_editing
                                 else "\nCtrl-C takes back the line; Ctrl-D or /bye leaves")
                except (EOFError, chat_commands.Leave):
                    return
                message = None
        finally:
            with ctrl_c_calls(lambda: None):        # the model must not go while a step is at work on it
                self.chat.join()

    def status(self, width: int) -> str:
        """How full the context is, and how the last answer went, in `width` columns: the context comes first."""
        last, context = self.chat.last, f"{self.chat.n_used:,} / {self.llm.n_ctx:,} tokens"
        parts = [self.model_name, f"{context} ({100 * self.chat.n_used // self.llm.n_ctx}%)"]
        if last is not None and last.timings.n_generated > 1:
            parts.append(f"{last.timings.tokens_per_s:,.1f} tokens/s")
        if last is not None and last.finish_reason == "length":
            parts.append("cut off by the limit")
        choices = [parts[:end] for end in range(len(parts), 1, -1)] + [parts[1:2], [context]]
        return next((line for line in map("  ".join, choices) if len(line) < width), context)

    def full_hint(self) -> str:
        """What to do about a context that is too small, with both sizes."""
        n = max(self.chat.n_used, self.chat.n_prompt)
        full = self._what_is_full(n) + "\n"
        ways = "/undo takes back the last exchange, /clear forgets all" if self.chat.messages else "shorten the message"
        if self.chat.template is None:
            ways = "each message starts anew; shorten it"
        n_train = self.n_ctx_train
        if n_train is not None and n_train <= (self.llm.n_ctx if self.chat.messages else n):
            return f"{full}{ways}: the model was trained for {n_train:,} tokens, so a larger context is of no use"
        larger = min(2 * max(n, self.llm.n_ctx), n_train or sys.maxsize)
        return (f"{full}{ways}{',' if self.chat.messages else ', or'} `-c {larger}` at the start makes it larger"
                + ("; /save and /load take the conversation there" if self.chat.messages else ""))

    def _what_is_full(self, n_tokens: int) -> str:
        limit = f"{n_tokens:,} tokens, but the context holds {self.llm.n_ctx:,}, the answer included"
        is_question = self.chat.unanswered is not None
        if is_question and (self.chat.template is None or not self.chat.messages):
            return f"the message is too long: {limit}"
        if is_question or n_tokens > self.llm.n_ctx:
            return f"the conversation is too long{' for this message' if is_question else ''}: {limit}"
        return f"the context is full: the conversation has all of its {self.llm.n_ctx:,} tokens"

    @property
    def n_ctx_train(self) -> int | None:
        """Tokens that the model was trained for; None if its file does not say."""
        metadata = self.llm.metadata
        return metadata.get_int(f"{metadata.get_str('general.architecture', None)}.context_length", None)

    def _raw_hint(self) -> str:
        """What to expect where no chat template is in use."""
        if self.llm.has_chat_template:
            return "Without its chat template it goes on with the text of each message, and then forgets it."
        return ("It has no chat template, as is usual of base models: it goes on with the text of each message instead "
                "of answering it, and then forgets it. `--chat-template chatml` at the start makes it try to answer.")

    def describe_model(self) -> Mapping[str, str]:
        """What `/show info` says."""
        metadata = self.llm.metadata
        rows = {"model": self.model_name, "name": metadata.get("general.name", ""),
                "architecture": metadata.get("general.architecture", ""), "context": f"{self.llm.n_ctx:,} tokens",
                **({} if self.llm.made is None else preface_rows(self.llm.made)),
                "messages": str(len(self.chat.messages)), "file": str(self.llm.path)}
        return {name: value for name, value in rows.items() if value}

    def describe_stats(self) -> Mapping[str, str]:
        """What `/stats` says."""
        rows = {"context": f"{self.chat.n_used:,} of {self.llm.n_ctx:,} tokens", **self.totals.describe()}
        if self.chat.last is not None:
            rows["last answer"] = timing_line(self.chat.last)[1:-1]
        return rows

    def _respond(self, message: str) -> bool:
        """Obey or answer, and say what went wrong; returns whether there was an answer."""
        try:
            if chat_commands.is_command(message):
                chat_commands.run(self, message)
                return False
            self.answer(message)
            return True
        except GgpyError as error:
            if not sys.stdin.isatty():      # nobody is there to do better
                raise
            self.say(self.full_hint() if isinstance(error, PromptTooLongError) else str(error))
        return False

    def _print(self, question: str, pieces: Iterable[str]) -> None:
        shows_question = self.chat.template is None and self.args.display_prompt
        console = rich_console(has_color(self.args))
        if self._is_rich:
            pieces = after_waiting(pieces, self._progress, console)
        output = MarkdownOutput(console) if self.is_markdown else PlainOutput()
        output.show(itertools.chain([question] if shows_question else [], pieces))

    def _progress(self) -> str:
        """How far a prompt is read; nothing while it is encoded, and where it is short."""
        n_read, n_prompt = self.chat.n_read, self.chat.n_prompt
        return f" {n_read:,} of {n_prompt:,} tokens read" if n_read and n_prompt >= LONG_PROMPT else ""

    def _say_how_it_ended(self, completion: Completion, without_answer: str) -> None:
        if completion.finish_reason == "length" and self.chat.constraint is not None:
            self.say("the answer was cut off: it is only the beginning of what the constraint asks for; "
                     + ("a larger context (-c) or a shorter prompt leaves room for more"
                        if self.chat.n_used >= self.llm.n_ctx else "a larger -n lets it end"))
        if not self._is_conversation:
            return
        if self.has_editing:
            print()
        if completion.finish_reason == "cancelled":
            self.say("(stopped)" if completion.text else f"(stopped before an answer: {without_answer})")
        elif self.chat.n_used >= self.llm.n_ctx:
            self.say(self.full_hint())

    def _show_tokens(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            print(f"{token:6} -> {self.llm.detokenize([token])!r}", file=sys.stderr)

    def _open_input(self) -> Input:
        from ggpy.tools import chat_input

        if not (self._is_rich and sys.stdin.isatty()):
            return chat_input.LineInput()
        self.has_editing = True
        return chat_input.EditedInput(chat_commands.completions, self.status, has_color(self.args))


@dataclass
class Totals:
    """Sums over the answers of a session."""

    n_answers: int = 0
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0

    def add(self, completion: Completion) -> None:
        self.n_answers += 1
        self.n_prompt += completion.n_prompt
        self.n_cached += completion.n_cached
        self.n_generated += len(completion.tokens)

    def describe(self) -> dict[str, str]:
        return {"this session": f"{_counted(self.n_answers, 'answer')} with {_counted(self.n_generated, 'token')}",
                "its prompts": f"{self.n_prompt:,} tokens, {self.n_cached:,} of them known from earlier turns"}


def is_rich(args: argparse.Namespace) -> bool:
    """Whether answers are shown as Markdown, and messages edited: where stdout is a person's, and can do it."""
    return sys.stdout.isatty() and not args.simple_io and not args.json and not config.is_dumb_terminal()


def has_color(args: argparse.Namespace) -> bool:
    """Whether what is shown has colours."""
    return is_rich(args) and (args.color == "on" or (args.color == "auto" and not config.no_color()))


def as_json(completion: Completion) -> dict[str, Any]:
    """An answer as `--json` prints it."""
    t = completion.timings
    return {"text": completion.text, "tokens": completion.tokens, "finish_reason": completion.finish_reason,
            "n_prompt": completion.n_prompt, "n_cached": completion.n_cached, "n_generated": t.n_generated,
            "n_drafted": t.n_drafted, "n_accepted": t.n_accepted, "seed": completion.seed,
            "timings": {"prompt_s": round(t.prompt_s, 6), "generation_s": round(t.generation_s, 6),
                        "prompt_tokens_per_s": round(t.prompt_tokens_per_s, 2),
                        "tokens_per_s": round(t.tokens_per_s, 2)}}


def timing_line(completion: Completion) -> str:
    t = completion.timings
    ending = "" if completion.finish_reason == "stop" else f", ended by {completion.finish_reason}"
    speed = f", {t.tokens_per_s:,.1f}/s" if t.n_generated > 1 else ""
    drafts = f", {t.n_accepted:,} of {_counted(t.n_drafted, 'draft')}" if t.n_drafted else ""
    return (f"[prompt {_counted(t.n_prompt, 'token')}, {t.prompt_tokens_per_s:,.1f}/s; "
            f"answer {_counted(t.n_generated, 'token')}{speed}{drafts}{ending}]")


def _counted(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"
