"""`ggpy run`: answer one prompt, or chat."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ggpy.tools import environment
from ggpy.tools.flags import add_model_flags, add_sampling_flags, model_options, unescape

if TYPE_CHECKING:
    from ggpy.llm import LLM
    from ggpy.text import ChatTemplate

# flags of llama.cpp for what ggpy does anyway (False), or not at all (True); and how many values they take
ACCEPTED: dict[tuple[str, ...], tuple[bool, Any]] = {
    ("--jinja",): (False, 0), ("--no-jinja",): (True, 0), ("-e", "--escape"): (False, 0),
    ("-mli", "--multiline-input"): (False, 0), ("--no-display-prompt",): (False, 0), ("--no-warmup",): (False, 0),
    ("--warmup",): (True, 0), ("--perf",): (False, 0), ("--no-perf",): (False, 0), ("--mmap",): (False, 0),
    ("--no-mmap",): (True, 0), ("--mlock",): (True, 0), ("-lm", "--load-mode"): (True, 1),
    ("-fa", "--flash-attn"): (False, "?"), ("-ngl", "--gpu-layers", "--n-gpu-layers"): (True, 1),
    ("-tb", "--threads-batch"): (True, 1), ("--keep",): (True, 1),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a name that `ggpy list` shows, "
                        "hf:user/repo[:QUANT], or a GGUF file")
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to answer; without it, and without a pipe on "
                        "stdin, a conversation begins. What is piped in is put behind the prompt")
    parser.add_argument("-m", "--model", dest="model_flag", metavar="MODEL", help="the model, as llama.cpp names it")
    parser.add_argument("-hf", "-hfr", "--hf-repo", dest="model_flag", type="hf:{}".format, metavar="user/repo[:QUANT]",
                        help="a model of Hugging Face; the same as hf:user/repo[:QUANT] for MODEL")
    parser.add_argument("--offline", action="store_true", help="use only models that are here")
    _add_prompt_flags(parser.add_argument_group("prompt"))
    _add_output_flags(parser.add_argument_group("output"))
    add_model_flags(parser)
    add_sampling_flags(parser)
    for flags, (has_no_effect, nargs) in ACCEPTED.items():
        parser.add_argument(*flags, action=_Accepted, nargs=nargs, const=has_no_effect, help=argparse.SUPPRESS)
    environment.apply(parser)
    parser.set_defaults(fail=parser.error)


def _add_prompt_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; \\n and the like are escapes")
    group.add_argument("-f", "--file", metavar="FILE", help="a file with the prompt")
    group.add_argument("-sys", "--system-prompt", metavar="TEXT", help="instructions in front of a conversation")
    group.add_argument("-sysf", "--system-prompt-file", metavar="FILE", help="a file with them")
    group.add_argument("--no-escape", dest="escape", action="store_false", help="take -p and -sys literally")
    group.add_argument("-cnv", "--conversation", dest="conversation", action="store_true", default=None,
                       help="go on after PROMPT; each line of a pipe is a message of its own")
    group.add_argument("-i", "--interactive", "-if", "--interactive-first", dest="conversation", action="store_true",
                       help="the same")
    group.add_argument("--raw", "-no-cnv", "--no-conversation", dest="raw", action="store_true",
                       help="continue the prompt as it stands, without the model's chat template")
    group.add_argument("-st", "--single-turn", action="store_true", help="leave after one answer")
    group.add_argument("--chat-template", metavar="JINJA", help="chat template instead of the model's; or chatml")
    group.add_argument("--chat-template-file", metavar="FILE", help="a file with a chat template")
    group.add_argument("--chat-template-kwargs", type=json_object, metavar="JSON",
                       help="variables for the chat template, such as '{\"enable_thinking\": false}'")


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print each answer as a JSON object on a line of its own: "
                       "text, tokens, finish_reason, n_prompt, n_cached, n_generated, timings")
    group.add_argument("--no-stream", dest="stream", action="store_false", help="print an answer when it is complete")
    group.add_argument("-co", "--color", nargs="?", const="on", default="auto", choices=("on", "off", "auto"),
                       help="Markdown, colours and line editing on a terminal; on: also where NO_COLOR is set")
    group.add_argument("--simple-io", action="store_true", help="plain text and plain lines on a terminal, too")
    group.add_argument("--display-prompt", action="store_true", help="with --raw, print the prompt before the answer")
    group.add_argument("--verbose-prompt", action="store_true", help="list the tokens of each prompt on stderr")
    group.add_argument("--show-timings", action=argparse.BooleanOptionalAction, default=True,
                       help="a line about speed on stderr")


def json_object(text: str) -> dict[str, Any]:
    """The object that a JSON text holds; an error for argparse otherwise."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r:.60}: expected a JSON object")
    return value


class _Accepted(argparse.Action):
    """A flag that changes nothing; says so where a user would expect that it does."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        if self.const:
            print(f"ggpy: {option_string} has no effect", file=sys.stderr)


def main(args: argparse.Namespace) -> int:
    from ggpy.tools.chat_session import Session
    from ggpy.tools.loading import load

    spec, prompt = read_arguments(args)
    system = read_text(args, args.system_prompt, args.system_prompt_file) or ""
    with load(spec, offline=args.offline, **model_options(args)) as llm:
        name = Path(spec).stem if Path(spec).suffix == ".gguf" else spec
        session = Session(llm, args, name, choose_template(llm, args), system)
        if prompt is None or (args.conversation and not args.single_turn):
            session.converse(prompt)
        else:
            session.answer(prompt)
    return 0


def read_arguments(args: argparse.Namespace) -> tuple[str, str | None]:
    """The model and the prompt, None for a conversation. Ends the process with 2 where they are missing or doubled."""
    words = [word for word in (args.model, *args.words) if word is not None]
    spec: str = args.model_flag or (words.pop(0) if words else environment.model() or "")
    if not spec:
        args.fail("there is no MODEL; `ggpy list` shows those that have a name")
    given = [text for text in (" ".join(words) or None, read_text(args, args.prompt, None),
                               read_text(args, None, args.file)) if text is not None]
    if len(given) > 1:
        args.fail("there is more than one prompt; give PROMPT, -p or -f")
    if args.conversation and not args.single_turn:
        return spec, given[0] if given else None
    piped = read_pipe()
    if piped:
        given.append(piped)
    if not given and not sys.stdin.isatty():
        args.fail("there is no prompt: PROMPT is missing and stdin is empty")
    return spec, "\n\n".join(given) if given else None


def read_text(args: argparse.Namespace, text: str | None, file: str | None) -> str | None:
    """A text from the command line, its escapes read, or from a file; None if there is neither."""
    if text is not None:
        return unescape(text) if args.escape else text
    return None if file is None else read_file(file).removesuffix("\n")


def read_file(file: str) -> str:
    """The text in `file`; raises ConfigError if it is not UTF-8."""
    from ggpy.errors import ConfigError

    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: byte {error.start:,} is not UTF-8 text; is this the right file?") from error


def read_pipe() -> str:
    """What a pipe or file on stdin holds; empty if stdin is a terminal, closed or /dev/null."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    with contextlib.suppress(OSError):      # no file descriptor behind it
        if stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
            return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


def choose_template(llm: LLM, args: argparse.Namespace) -> ChatTemplate | None:
    """How messages are written; None: prompts are continued as they stand. Raises TemplateError, ConfigError."""
    from ggpy.errors import ConfigError
    from ggpy.text import ChatTemplate
    from ggpy.text.chat import CHATML

    source = args.chat_template
    if source is None and args.chat_template_file is not None:
        source = read_file(args.chat_template_file)
    elif source == "chatml":
        source = CHATML
    elif source is not None and "{" not in source:
        raise ConfigError(f"--chat-template {source}: expected chatml or a Jinja template; --chat-template-file reads "
                          "one from a file")
    if args.raw or (source is None and not llm.has_chat_template and not args.conversation):
        return None
    metadata = llm.metadata if source is None else {"tokenizer.chat_template": source}
    return ChatTemplate.from_metadata(metadata, llm.tokenizer)
