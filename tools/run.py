"""`ggpy run`: answer one prompt, or chat line by line."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ggpy.tools.flags import add_model_flags, add_sampling_flags, model_options, sampling_params, unescape

if TYPE_CHECKING:
    from ggpy.engine.config import SamplingParams
    from ggpy.llm import LLM, CompletionStream

# what a model may not send to a terminal, where it could move the cursor or worse
CONTROLS = dict.fromkeys([*(i for i in range(32) if chr(i) not in "\n\t"), *range(127, 160)], "\ufffd")
HELP = "Ctrl-C stops an answer, /clear forgets the conversation, Ctrl-D or /bye ends it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a name that `ggpy list` shows, "
                        "hf:user/repo[:QUANT], or a GGUF file")
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to answer; without it, and without a pipe on "
                        "stdin, a conversation begins. What is piped in is put behind the prompt")
    parser.add_argument("-m", "--model", dest="model_flag", metavar="MODEL", help="the model, as llama.cpp names it")
    parser.add_argument("-hf", "-hfr", "--hf-repo", dest="model_flag", type="hf:{}".format, metavar="user/repo[:QUANT]",
                        help="a model of Hugging Face; the same as hf:user/repo[:QUANT] for MODEL")
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; \\n and the like are escapes")
    parser.add_argument("-f", "--file", metavar="FILE", help="a file with the prompt")
    parser.add_argument("--no-escape", dest="escape", action="store_false", help="take -p and -sys literally")
    parser.add_argument("-sys", "--system-prompt", metavar="TEXT", help="instructions in front of a conversation")
    parser.add_argument("--raw", "-no-cnv", "--no-conversation", dest="raw", action="store_true",
                        help="continue the prompt as it stands, without the model's chat template")
    parser.add_argument("--no-stream", dest="stream", action="store_false", help="print an answer when it is complete")
    parser.add_argument("--no-show-timings", dest="show_timings", action="store_false",
                        help="no line about speed on stderr")
    add_model_flags(parser)
    add_sampling_flags(parser)
    parser.set_defaults(fail=parser.error)


def main(args: argparse.Namespace) -> int:
    from ggpy.tools.loading import load

    spec, prompt = read_arguments(args)
    with load(spec, **model_options(args)) as llm:
        session = Session(llm, args, sampling_params(args, llm.metadata))
        if prompt is None:
            session.converse(spec)
        else:
            session.answer(prompt)
    return 0


def read_arguments(args: argparse.Namespace) -> tuple[str, str | None]:
    """The model and the prompt, None for a conversation. Ends the process with 2 where they are missing or doubled."""
    words = [word for word in (args.model, *args.words) if word is not None]
    if args.model_flag is None and not words:
        args.fail("there is no MODEL; `ggpy list` shows those that have a name")
    spec: str = args.model_flag or words.pop(0)
    given = [text for text in (
        " ".join(words) or None,
        unescape(args.prompt) if args.prompt is not None and args.escape else args.prompt,
        None if args.file is None else Path(args.file).read_text(encoding="utf-8").removesuffix("\n"),
    ) if text is not None]
    if len(given) > 1:
        args.fail("there is more than one prompt; give PROMPT, -p or -f")
    piped = read_pipe()
    if piped:
        given.append(piped)
    if not given and not sys.stdin.isatty():
        args.fail("there is no prompt: PROMPT is missing and stdin is empty")
    return spec, "\n\n".join(given) if given else None


def read_pipe() -> str:
    """What a pipe or file on stdin holds; empty if stdin is a terminal, closed or /dev/null."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    with contextlib.suppress(OSError):      # no file descriptor behind it
        if stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
            return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


class Session:
    """A model and what was said to it so far."""

    def __init__(self, llm: LLM, args: argparse.Namespace, params: SamplingParams) -> None:
        self.llm = llm
        self.params = params
        self.raw = args.raw or not llm.has_chat_template
        self.streams = args.stream
        self.shows_timings = args.show_timings
        system = unescape(args.system_prompt) if args.system_prompt and args.escape else args.system_prompt
        self.messages = [{"role": "system", "content": system}] if system else []
        self._n_system = len(self.messages)

    def answer(self, prompt: str) -> None:
        """Print the answer to `prompt`; a conversation remembers both."""
        messages = [*self.messages, {"role": "user", "content": prompt}]
        stream = self.llm.stream(prompt, self.params) if self.raw else self.llm.stream_chat(messages, self.params)
        try:
            self._print(stream)
        finally:
            stream.close()
            self.messages = [*messages, {"role": "assistant", "content": stream.completion.text}]
        if self.shows_timings:
            print_timings(stream)

    def _print(self, stream: CompletionStream) -> None:
        is_terminal = sys.stdout.isatty()
        for piece in stream if self.streams else [stream.finish().text]:
            sys.stdout.write(piece.translate(CONTROLS) if is_terminal else piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()

    def converse(self, name: str) -> None:
        """Read lines from the terminal and answer them until /bye or the end of input."""
        enable_line_editing()
        print(f"{name}: {self.llm.n_ctx:,} tokens of context. {HELP}", file=sys.stderr)
        while True:
            try:
                line = input(">>> ").strip()
            except KeyboardInterrupt:
                print(f"\n{HELP}", file=sys.stderr)
                continue
            except EOFError:
                print()
                return
            if line in ("/bye", "/exit"):
                return
            if line == "/clear":
                del self.messages[self._n_system:]
            elif line in ("/help", "/?"):
                print(HELP, file=sys.stderr)
            elif line:
                self._answer_line(line)

    def _answer_line(self, line: str) -> None:
        from ggpy.errors import PromptTooLongError

        try:
            self.answer(line)
        except KeyboardInterrupt:
            print()
        except PromptTooLongError as error:
            print(f"{error}; /clear forgets the conversation", file=sys.stderr)


def print_timings(stream: CompletionStream) -> None:
    completion = stream.completion
    t = completion.timings
    ending = "" if completion.finish_reason == "stop" else f", ended by {completion.finish_reason}"
    print(f"[prompt {t.n_prompt:,} tokens, {t.prompt_tokens_per_s:,.1f}/s; answer {t.n_generated:,} tokens, "
          f"{t.tokens_per_s:,.1f}/s{ending}]", file=sys.stderr, flush=True)


def enable_line_editing() -> None:
    """Arrow keys and history in `input`, where Python has readline."""
    try:
        import readline  # noqa: F401
    except ImportError:
        return
