"""`ggpy run`: answer one prompt, or chat."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggpy.errors import ConfigError, GgpyError
from ggpy.hub import names
from ggpy.tools import environment, inputs
from ggpy.tools.constraint_flags import add_constraint_flags, read_constraint
from ggpy.tools.flags import add_model_flags, add_sampling_flags, model_options, unescape
from ggpy.tools.llama_flags import add_llama_flags
from ggpy.tools.parser import Parser, shown
from ggpy.tools.speculation_flags import add_speculation_flags, speculation_options

if TYPE_CHECKING:
    from ggpy.hub.store import StoredModel
    from ggpy.llm import LLM
    from ggpy.text import ChatTemplate
    from ggpy.tools.chat_session import Session

DESCRIPTION = """\
Chat with a model, or answer one prompt.

The first word is the MODEL, the others are the PROMPT. With -m or -hf, all
words are the PROMPT. Where there is no word at all, LLAMA_ARG_MODEL or
LLAMA_ARG_HF_REPO may name the model. What a file (-f) has and what is piped in
is put behind the prompt. Without any of them, a conversation begins."""
AFFIXES = ("in_prefix", "in_suffix", "in_prefix_bos")
EXAMPLES = """\
examples:
  ggpy run smollm2                               chat; Ctrl-D leaves
  ggpy run smollm2 "Why is it dark at night?"    one answer
  ggpy run smollm2 "Summarise:" < notes.txt      the file behind the prompt
  ggpy run hf:user/repo:Q8_0 -sys "Be brief"     a model of Hugging Face
  ggpy run -m model.gguf -p "Once upon" --raw -n 64 --temp 0"""


def add_arguments(parser: Parser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a name that `ggpy list` shows, "
                        "hf:user/repo[:QUANT], or a GGUF file")
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what to answer")
    _add_prompt_flags(parser.add_argument_group("prompt"))
    _add_template_flags(parser.add_argument_group("chat template"))
    _add_output_flags(parser.add_argument_group("output"))
    _add_source_flags(parser.add_argument_group("model"))
    add_model_flags(parser)
    add_speculation_flags(parser)
    add_sampling_flags(parser)
    add_constraint_flags(parser)
    add_llama_flags(parser)
    parser.variables = environment.VARIABLES


def _add_source_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-m", "--model", dest="model_flag", metavar="MODEL", help="the same as the word MODEL")
    group.add_argument("-hf", "-hfr", "--hf-repo", dest="hub_model", type=inputs.hub_model,
                       metavar="user/repo[:QUANT]", help="the same as hf:user/repo[:QUANT] for MODEL")
    group.add_argument("-hff", "--hf-file", metavar="FILE", help="with -hf: this file of the repository")
    group.add_argument("-hft", "--hf-token", metavar="TOKEN", help="opens gated models of Hugging Face, "
                       "as the variable HF_TOKEN does; other users of this machine may see what is on a command line")
    group.add_argument("--offline", action="store_true", help="use only models that are here")


def _add_prompt_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; in this and other TEXT, \\n and the like "
                       "are escapes")
    group.add_argument("-f", "--file", type=inputs.file_lines, metavar="FILE", help="a file with the prompt, or with "
                       "what is put behind PROMPT")
    group.add_argument("-bf", "--binary-file", type=inputs.file_text, metavar="FILE",
                       help="the same, but a newline at its end counts")
    group.add_argument("-sys", "--system-prompt", metavar="TEXT", help="instructions in front of a conversation")
    group.add_argument("-sysf", "--system-prompt-file", type=inputs.file_lines, metavar="FILE",
                       help="a file with them")
    group.add_argument("--no-escape", dest="escape", action="store_false", help="take these texts literally")
    group.add_argument("-cnv", "--conversation", dest="conversation", action="store_true", default=None,
                       help="go on after PROMPT; each line of a pipe is a message of its own")
    group.add_argument("-i", "--interactive", "-if", "--interactive-first", dest="conversation", action="store_true",
                       help="the same")
    group.add_argument("-st", "--single-turn", action="store_true", help="leave after one answer")
    group.add_argument("--raw", "-no-cnv", "--no-conversation", dest="raw", action="store_true",
                       help="continue the prompt as it stands, without a chat template")


def _add_template_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--chat-template", type=inputs.chat_template, metavar="NAME|JINJA",
                       help="in place of the model's: chatml, llama3, gemma, ... (a wrong name lists them), or Jinja")
    group.add_argument("--chat-template-file", dest="chat_template", type=inputs.chat_template_file, metavar="FILE",
                       help="a file with a chat template")
    group.add_argument("--in-prefix", metavar="TEXT", help="without a template: what stands in front of each message")
    group.add_argument("--in-suffix", metavar="TEXT", help="without a template: what stands behind each message")
    group.add_argument("--in-prefix-bos", action="store_true", help="the token that begins a text, in front of that")
    group.add_argument("--chat-template-kwargs", type=inputs.json_object, metavar="JSON",
                       help="variables for the chat template, such as '{\"enable_thinking\": false}'")


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-o", "--output", "--output-file", type=inputs.output_file, metavar="FILE",
                       help="write answers to FILE, not to stdout; what it has is kept until the model is loaded")
    group.add_argument("--json", action="store_true", help="print each answer as a JSON object on a line of its own: "
                       "text, tokens, finish_reason, n_prompt, n_cached, n_generated, n_drafted, n_accepted, seed, "
                       "timings")
    group.add_argument("--no-stream", dest="stream", action="store_false", help="print an answer when it is complete")
    group.add_argument("-co", "--color", nargs="?", const="on", default="auto", choices=("on", "off", "auto"),
                       help="colours on a terminal; on: also where NO_COLOR is set")
    group.add_argument("--simple-io", action="store_true",
                       help="plain text and plain lines on a terminal, too, as with --json")
    group.add_argument("--display-prompt", action="store_true", help="with --raw, print the prompt before the answer")
    group.add_argument("--verbose-prompt", action="store_true", help="list the tokens of each prompt on stderr")
    group.add_argument("--show-timings", action=argparse.BooleanOptionalAction, default=True,
                       help="a line about speed on stderr")


def main(args: argparse.Namespace) -> int:
    from ggpy.tools.chat_session import Session
    from ggpy.tools.loading import load

    spec, words = read_model(args)
    source = read_template(args)
    system = read_system_prompt(args)
    constraint = read_constraint(args)
    options = {**model_options(args), **speculation_options(args)}
    prompt = read_prompt(args, words)
    args.stop = args.stop and [_unescaped(args, text) for text in args.stop]
    if args.hf_token is not None:
        os.environ["HF_TOKEN"] = args.hf_token
    with load(spec, offline=args.offline, **options) as llm:
        name = Path(spec).stem if Path(spec).suffix == ".gguf" else spec
        if llm.made is not None:
            system = take_over(llm.made, args, system)
        template = choose_template(llm, args, source, system)
        with _stdout_to(args.output):
            session = Session(llm, args, name, template, system, constraint)
            if prompt is None or (args.conversation and not args.single_turn):
                _converse(session, prompt)
            else:
                session.answer(prompt)
    return 0


def _converse(session: Session, prompt: str | None) -> None:
    """Talk until the user leaves; what is wrong in a conversation is no wrong usage of the command line."""
    try:
        session.converse(prompt)
    except ConfigError as error:
        raise GgpyError(str(error)) from error


def read_model(args: argparse.Namespace) -> tuple[str, list[str]]:
    """The model, and the words that are the prompt. Ends the process with 2 where there is none, or two."""
    words = [word for word in (args.model, *args.words) if word is not None]
    if args.model_flag and args.hub_model:
        args.fail(f"-m {args.model_flag} and -hf {args.hub_model} are two models; give one")
    if args.hf_file and not args.hub_model:
        args.fail("-hff needs -hf, the repository that the file is in")
    spec: str = args.model_flag or args.hub_model or ""
    if spec:
        if words and inputs.is_model(words[0]):
            args.fail(f"there are two models, {words[0]} and {spec}; give one, and a prompt that looks like one as -p")
        if args.hf_file:
            spec = f"{names.PREFIX}{names.parse(spec).repo}:{args.hf_file}"
        return spec, words
    spec = words.pop(0) if words else environment.model() or ""
    if not spec:
        args.fail("there is no MODEL; `ggpy list` shows those that have a name")
    if len(spec.split()) > 1 and not os.path.isfile(os.path.expanduser(spec)):
        args.fail(f"{shown(spec)} is the first word, so it should be the MODEL; `ggpy list` shows those that "
                  "have a name, and -p gives the prompt where LLAMA_ARG_MODEL names the model")
    return spec, words


def read_system_prompt(args: argparse.Namespace) -> str:
    """The text in front of a conversation. Ends the process with 2 where there are two, or it has no place."""
    given = _given(args, ("system_prompt", "system_prompt_file"))
    if len(given) > 1:
        args.fail(f"there are two system prompts, {' and '.join(given)}; give one")
    if given and args.raw and not _given(args, AFFIXES):
        args.fail(f"{given[0]} needs a chat template, and {args.flags['raw']} goes without; put all text into the "
                  "prompt")
    return _unescaped(args, args.system_prompt) or args.system_prompt_file or ""


def read_template(args: argparse.Namespace) -> str | None:
    """The Jinja source of how messages are written; None: as the model has it, or not at all.

    Ends the process with 2 where it is said in two ways.
    """
    template, affixes = _given(args, ("chat_template", "chat_template_kwargs")), _given(args, AFFIXES)
    others = [*_given(args, ("raw",)), *affixes]
    if template and others:
        args.fail(f"{template[0]} and {others[0]} exclude each other")
    if affixes:
        prefix, suffix = (_unescaped(args, text) or "" for text in (args.in_prefix, args.in_suffix))
        return inputs.affix_template(prefix, suffix, starts_with_bos=args.in_prefix_bos)
    return None if args.raw else args.chat_template


def _given(args: argparse.Namespace, dests: Iterable[str]) -> list[str]:
    """The flags among `dests` that are on the command line, as they are spelled there."""
    return [args.flags[dest] for dest in dests if dest in args.flags]


def read_prompt(args: argparse.Namespace, words: Sequence[str]) -> str | None:
    """The prompt, None for a conversation. Ends the process with 2 where there is none, or two."""
    said = _only_one(args, "prompts", {"PROMPT": " ".join(words) or None, "-p": _unescaped(args, args.prompt)})
    read = _only_one(args, "files with a prompt", {"-f": args.file, "-bf": args.binary_file})
    prompt = said if read is None else "\n\n".join(filter(None, (said, read)))
    if args.conversation and not args.single_turn:
        return prompt
    piped = inputs.read_pipe()
    if prompt is None and not piped and not sys.stdin.isatty():
        args.fail("there is no prompt: PROMPT is missing and stdin is empty")
    return "\n\n".join(filter(None, (prompt, piped))) if prompt or piped else prompt


def _only_one(args: argparse.Namespace, what: str, texts: Mapping[str, str | None]) -> str | None:
    """The text that is given, None where there is none; ends the process with 2 where there are two."""
    given = [name for name, text in texts.items() if text is not None]
    if len(given) > 1:
        args.fail(f"there are two {what}, {given[0]} and {given[1]}; give one")
    return texts[given[0]] if given else None


def _unescaped(args: argparse.Namespace, text: str | None) -> str | None:
    return unescape(text) if text and args.escape else text


@contextlib.contextmanager
def _stdout_to(file: str | None) -> Iterator[None]:
    """Let what is printed go to `file`, if there is one."""
    if file is None:
        yield
        return
    with open(file, "w", encoding="utf-8", errors="replace") as output, contextlib.redirect_stdout(output):
        yield


def take_over(made: StoredModel, args: argparse.Namespace, system: str) -> str:
    """Give flags that are not there the values that the model's maker chose; returns the system prompt."""
    from ggpy.made import sampling_values

    for name, value in sampling_values(made.parameters).items():
        if getattr(args, name) is None:
            setattr(args, name, -1 if value is None else list(value) if name == "stop" else value)
    return system or ("" if args.raw else made.system or "")


def choose_template(llm: LLM, args: argparse.Namespace, source: str | None, system: str) -> ChatTemplate | None:
    """How messages are written: as `source` has it, else as the model; None: prompts are continued as they stand.

    Raises TemplateError, and ConfigError for a system prompt that could not be written.
    """
    from ggpy.text import ChatTemplate

    if source is None and args.raw:
        return None
    if source is None and not llm.has_chat_template and not args.conversation:
        if system:
            raise ConfigError("this model has no chat template, so there is no place for a system prompt; choose one "
                              "with --chat-template, chatml for example")
        return None
    if source is None and llm.made is not None and llm.made.template is not None:
        return llm.chat_template
    if source is None:
        return ChatTemplate.from_metadata(llm.metadata, llm.tokenizer)
    return ChatTemplate.from_source(source, llm.tokenizer, key="the chat template")
