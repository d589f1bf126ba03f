"""The flags of `ggpy serve`, with llama-server's names."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from ggpy.engine.config import Pooling
from ggpy.server.options.idle_flags import add_idle_flags
from ggpy.server.settings import (
    DEFAULT_PORT,
    MAX_BODY_BYTES,
    MAX_SLOTS,
    OLLAMA_IDLE_S,
    OLLAMA_PORT,
    SIMILARITY,
    TIMEOUT_S,
)
from ggpy.tools import environment, inputs
from ggpy.tools.constraint_flags import add_constraint_flags
from ggpy.tools.flags import add_model_flags, add_sampling_flags, whole_number
from ggpy.tools.llama_flags import add_llama_flags
from ggpy.tools.parser import Parser
from ggpy.tools.speculation_flags import add_speculation_flags

DESCRIPTION = """\
Serve a model by HTTP, as llama-server does.

MODEL is a name that `ggpy list` shows, hf:user/repo[:QUANT], or a GGUF file;
it may also be given by -m or -hf. Without one, the models that are on this
machine are loaded when requests name them."""
EXAMPLES = """\
examples:
  ggpy serve smollm2                        on http://127.0.0.1:8080
  ggpy serve -m model.gguf --port 9000 -c 8192 -np 2
  ggpy serve -hf user/repo:Q8_0 --api-key secret --host 0.0.0.0"""
VARIABLES = {
    "--host": "HOST", "--port": "PORT", "--reuse-port": "REUSE_PORT", "--api-prefix": "API_PREFIX",
    "--path": "STATIC_PATH", "--ui": "UI", "--api-key-file": "API_KEY_FILE", "--ssl-key-file": "SSL_KEY_FILE",
    "--ssl-cert-file": "SSL_CERT_FILE", "--cors-origins": "CORS_ORIGINS", "--cors-methods": "CORS_METHODS",
    "--cors-headers": "CORS_HEADERS", "--cors-credentials": "CORS_CREDENTIALS",
    "--sse-ping-interval": "SSE_PING_INTERVAL", "--parallel": "N_PARALLEL", "--kv-unified": "KV_UNIFIED",
    "--alias": "ALIAS", "--tags": "TAGS", "--embedding": "EMBEDDINGS", "--reranking": "RERANKING",
    "--metrics": "ENDPOINT_METRICS", "--props": "ENDPOINT_PROPS", "--slots": "ENDPOINT_SLOTS",
    "--cache-prompt": "CACHE_PROMPT", "--context-shift": "CONTEXT_SHIFT",
    "--jinja": "JINJA", "--reasoning-format": "THINK", "--reasoning": "REASONING",
    "--reasoning-effort": "REASONING_EFFORT", "--reasoning-preserve": "REASONING_PRESERVE",
    "--skip-chat-parsing": "SKIP_CHAT_PARSING", "--timeout": "TIMEOUT", "--reasoning-budget": "THINK_BUDGET",
    "--reasoning-budget-message": "THINK_BUDGET_MESSAGE",
    "--prefill-assistant": "PREFILL_ASSISTANT", "--models-dir": "MODELS_DIR", "--models-preset": "MODELS_PRESET",
    "--models-max": "MODELS_MAX", "--models-autoload": "MODELS_AUTOLOAD",
    "--pooling": "POOLING", "--spec-draft-model": "SPEC_DRAFT_MODEL",
    "--spec-draft-hf": "SPEC_DRAFT_HF_REPO", "--spec-draft-n-max": "SPEC_DRAFT_N_MAX",
    "--spec-draft-n-min": "SPEC_DRAFT_N_MIN", "--spec-draft-p-min": "SPEC_DRAFT_P_MIN", "--spec-type": "SPEC_TYPE",
    "--spec-synth-rates": "SPEC_SYNTH_RATES",
}


def add_arguments(parser: Parser) -> None:
    """Declare them all."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("model", nargs="?", metavar="MODEL", help="what to serve")
    _add_source_flags(parser.add_argument_group("model"))
    _add_address_flags(parser.add_argument_group("address"))
    _add_access_flags(parser.add_argument_group("access"))
    _add_service_flags(parser.add_argument_group("service"))
    _add_chat_flags(parser.add_argument_group("chat"))
    add_model_flags(parser)
    add_speculation_flags(parser)
    add_sampling_flags(parser)
    add_constraint_flags(parser)
    add_idle_flags(parser)
    add_llama_flags(parser)
    shared = {flag: name for flag, name in environment.VARIABLES.items() if flag != "--show-timings"}
    parser.variables = {**shared, **VARIABLES}


def _add_source_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-m", "--model", dest="model_flag", metavar="MODEL", help="the same as the word MODEL")
    group.add_argument("-hf", "-hfr", "--hf-repo", dest="hub_model", type=inputs.hub_model,
                       metavar="user/repo[:QUANT]", help="the same as hf:user/repo[:QUANT] for MODEL")
    group.add_argument("-hff", "--hf-file", metavar="FILE", help="with -hf: this file of the repository")
    group.add_argument("-hft", "--hf-token", metavar="TOKEN", help="opens gated models of Hugging Face, as the "
                       "variable HF_TOKEN does")
    group.add_argument("--offline", action="store_true", help="use only models that are here")
    group.add_argument("-a", "--alias", type=_names, default=(), metavar="NAMES", help="what requests call the model, "
                       "separated by commas")
    group.add_argument("--tags", type=_names, default=(), metavar="NAMES", help="words that the list of models shows")
    group.add_argument("--models-dir", type=_folder, metavar="DIR", help="without MODEL: a folder of GGUF files")
    group.add_argument("--models-preset", type=Path, metavar="FILE", help="without MODEL: an INI file with a section "
                       "for each model, and flags as its keys; [*] is for all")
    group.add_argument("--models-max", type=whole_number(0), default=4, metavar="N",
                       help="without MODEL: models that are loaded at a time; 0: any number (default: 4)")
    group.add_argument("--models-autoload", action=argparse.BooleanOptionalAction, default=True,
                       help="without MODEL: load a model when a request names it (default)")
    group.add_argument("--sleep-idle-seconds", type=whole_number(1, or_negative=True), metavar="S",
                       help=f"unload a model that nobody asked for so long; -1: never (default: -1, with --ollama "
                       f"{OLLAMA_IDLE_S})")


def _add_address_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", type=_names, metavar="HOSTS", help="addresses, separated by "
                       "commas, or a UNIX socket ending in .sock (default: 127.0.0.1: this machine alone; with "
                       "--ollama as OLLAMA_HOST has it)")
    group.add_argument("--port", type=whole_number(0, 65535), metavar="N",
                       help=f"0: one that is free (default: {DEFAULT_PORT})")
    group.add_argument("--ollama", action="store_true", help="stand in for an Ollama server: at its port, "
                       f"{OLLAMA_PORT}, without --port, and GET / answers as it does")
    group.add_argument("--reuse-port", action="store_true", help="let several servers listen on the port")
    group.add_argument("--api-prefix", default="", metavar="PATH", help="in front of all paths")
    group.add_argument("--ssl-key-file", type=_file, metavar="FILE", help="the key for https, as PEM")
    group.add_argument("--ssl-cert-file", type=_file, metavar="FILE", help="the certificate for https, as PEM")
    group.add_argument("--path", type=_folder, metavar="DIR", help="serve the files of DIR at /")
    group.add_argument("--ui", "--webui", action=argparse.BooleanOptionalAction, default=True,
                       help="a page to chat at / (default)")
    group.add_argument("-to", "--timeout", type=whole_number(1), default=TIMEOUT_S, metavar="S",
                       help=f"a client that neither sends nor takes anything for so long is given up (default: "
                       f"{TIMEOUT_S})")
    group.add_argument("--drain-seconds", type=whole_number(0), default=30, metavar="S",
                       help="how long answers may go on when the server is told to end (default: 30)")


def _add_access_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--api-key", type=_names, default=(), metavar="KEYS", help="requests need one of these, "
                       "separated by commas; so does the variable LLAMA_API_KEY have it")
    group.add_argument("--api-key-file", type=inputs.file_lines, metavar="FILE", help="a file with a key on each line")
    group.add_argument("--allowed-hosts", type=_names, default=(), metavar="NAMES", help="names of this machine by "
                       "which pages of the web may reach a server that listens on 127.0.0.1 alone")
    group.add_argument("--cors-origins", metavar="ORIGINS", help="whose pages may ask and read answers, separated "
                       "by commas; *: all, localhost: those of this machine (default: *, with --ollama localhost and "
                       "OLLAMA_ORIGINS)")
    group.add_argument("--cors-methods", default="GET, POST, DELETE, OPTIONS", metavar="METHODS",
                       help="what a browser is told (default: GET, POST, DELETE, OPTIONS)")
    group.add_argument("--cors-headers", default="*", metavar="HEADERS", help="the same (default: *)")
    group.add_argument("--cors-credentials", action=argparse.BooleanOptionalAction, default=True,
                       help="the same (default)")
    group.add_argument("--max-body-size", type=whole_number(1), default=MAX_BODY_BYTES >> 20, metavar="MiB",
                       help=f"of a request (default: {MAX_BODY_BYTES >> 20})")


def _add_service_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-np", "--parallel", type=whole_number(1, MAX_SLOTS, or_negative=True), default=-1, metavar="N",
                       help="answer N requests at a time, each with a share of -c; -1: as many as fit, with all of it "
                       "(default: -1)")
    group.add_argument("-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, default=None,
                       help="a request may have all of -c (default without -np)")
    group.add_argument("-no-kvu", dest="kv_unified", action="store_false", help=argparse.SUPPRESS)
    group.add_argument("--cache-prompt", action=argparse.BooleanOptionalAction, default=True,
                       help="what earlier requests have read is not read again (default)")
    group.add_argument("--lora-init-without-apply", dest="applies_lora", action="store_false",
                       help="adapters have scale 0 until a request, or POST /lora-adapters, gives another")
    group.add_argument("--context-shift", action=argparse.BooleanOptionalAction, default=False,
                       help="when -c is full, half of it goes and the answer goes on")
    group.add_argument("--keep", type=whole_number(0, or_negative=True), default=0, metavar="N",
                       help="tokens at the beginning that stay then; -1: the prompt (default: 0)")
    group.add_argument("--embedding", "--embeddings", action="store_true", help="serve embeddings")
    group.add_argument("--reranking", "--rerank", action="store_true", help="serve reranking")
    group.add_argument("--pooling", choices=get_args(Pooling), help="which hidden states make a text's vector "
                       "(default: as the model says)")
    group.add_argument("--embd-normalize", type=int, default=2, metavar="N", help="-1: as they are, 0: to 16-bit "
                       "integers, 1: by the sum, 2: to length 1, above: by that norm (default: 2)")
    group.add_argument("--metrics", action="store_true", help="serve /metrics, for Prometheus and `ggpy top`")
    group.add_argument("--props", action="store_true", help="take POST /props")
    group.add_argument("--slots", action=argparse.BooleanOptionalAction, default=True, help="serve /slots (default)")
    group.add_argument("--slot-save-path", type=_folder, metavar="DIR", help="where what was read can be saved")
    group.add_argument("--record", type=Path, metavar="FILE", help="write a trace of all requests, without their text, "
                       "which `ggpy bench serve --trace FILE` sends again")
    group.add_argument("-sps", "--slot-prompt-similarity", type=share, default=SIMILARITY, metavar="F",
                       help="a request gets the slot whose text it goes on with by more than this share, 0 to 1 "
                       f"(default: {SIMILARITY:g})")
    group.add_argument("-sp", "--special", action="store_true", help="answers have control tokens, too")
    group.add_argument("--no-escape", dest="unescapes", action="store_false", help="-r is taken as it stands")
    group.add_argument("--sse-ping-interval", type=int, default=30, metavar="S",
                       help="a sign of life in streams that are silent so long; -1: none (default: 30)")
    group.add_argument("--spm-infill", action="store_true", help="/infill with the suffix first")


def _add_chat_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jinja", action=argparse.BooleanOptionalAction, default=True,
                       help="chats by the model's Jinja template, with tools (default)")
    group.add_argument("--chat-template", type=inputs.chat_template, metavar="NAME|JINJA",
                       help="in place of the model's: chatml, llama3, gemma, ... (a wrong name lists them), or Jinja")
    group.add_argument("--chat-template-file", dest="chat_template", type=inputs.chat_template_file, metavar="FILE",
                       help="a file with a chat template")
    group.add_argument("--chat-template-kwargs", type=inputs.json_object, default={}, metavar="JSON",
                       help="variables for the chat template, such as '{\"enable_thinking\": false}'")
    group.add_argument("--reasoning-format", choices=("none", "auto", "deepseek", "deepseek-legacy"), default="auto",
                       help="none: reasoning stays in the content (default: auto)")
    group.add_argument("-rea", "--reasoning", choices=("on", "off", "auto"), default="auto",
                       help="whether models think (default: auto)")
    group.add_argument("--reasoning-effort", metavar="LEVEL", help="how much, for templates that know: minimal, low, "
                       "medium, high, ... (default: as the template has it)")
    group.add_argument("--reasoning-preserve", action=argparse.BooleanOptionalAction, default=True,
                       help="reasoning of earlier answers stays in the prompt, with templates that can (default)")
    group.add_argument("--skip-chat-parsing", action=argparse.BooleanOptionalAction, default=False,
                       help="all that a model writes is content: reasoning and calls of tools, too")
    group.add_argument("--reasoning-budget", type=whole_number(0, or_negative=True), default=-1, metavar="N",
                       help="tokens of reasoning; -1: any number (default: -1)")
    group.add_argument("--reasoning-budget-message", default="", metavar="TEXT", help="what ends it then")
    group.add_argument("--prefill-assistant", action=argparse.BooleanOptionalAction, default=True,
                       help="a last message of the assistant is gone on with (default)")


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("expected a number from 0 to 1")
    return value


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("expected a name, or several separated by commas")
    return names


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError("there is no such folder")
    return path


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError("there is no such file")
    return text


