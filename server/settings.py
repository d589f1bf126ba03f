"""What the user chooses before the server starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ggpy.engine.config import Pooling, SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.errors import ConfigError
from ggpy.gguf import Metadata
from ggpy.loading import ModelOptions

DEFAULT_PORT = 8080
OLLAMA_PORT = 11434
OLLAMA_IDLE_S = 300         # its models go after so long
DEFAULT_SLOTS = 4
MAX_BODY_BYTES = 32 << 20
MAX_SLOTS = 64
SIMILARITY = 0.1            # a slot whose tokens begin a prompt to more than this share is taken for it
TIMEOUT_S = 3600


def default_sampling(metadata: Metadata) -> SamplingParams:
    """Whatever the model."""
    return SamplingParams()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the server listens, whom it serves, and what requests get that do not say. Raises ConfigError."""

    hosts: tuple[str, ...] = ("127.0.0.1",)         # addresses, or the path of a UNIX socket that ends in .sock
    port: int = DEFAULT_PORT                        # 0: one that is free
    reuse_port: bool = False
    ssl_files: tuple[str, str] | None = None        # certificate and key
    api_prefix: str = ""                            # in front of every path
    api_keys: frozenset[str] = frozenset()          # one of them is needed; none: everybody is served
    allowed_hosts: frozenset[str] = frozenset()     # names that the server goes by, beside addresses and localhost
    cors_origins: str = "*"                         # "*": any, as it says; "localhost": those of this machine
    cors_methods: str = "GET, POST, DELETE, OPTIONS"
    cors_headers: str = "*"
    cors_credentials: bool = True
    max_body_bytes: int = MAX_BODY_BYTES
    timeout_s: float = TIMEOUT_S                    # a client that neither sends nor takes anything is given up then
    drain_s: float = 30.0                           # how long answers that run may take when the server ends
    sse_ping_s: int = 30                            # negative: no pings
    n_slots: int = DEFAULT_SLOTS                    # requests that are served at once
    slot_similarity: float = SIMILARITY
    is_unified: bool = True                         # the context is one request's; else it is divided among slots
    is_ctx_cut: bool = False                        # requests together have no more than one may have, or each slot
    aliases: tuple[str, ...] = ()                   # names of the model
    tags: tuple[str, ...] = ()
    predict_path: str | None = None                 # where Vertex AI's predictions are served
    health_path: str | None = None                  # beside /health
    is_ollama: bool = False                         # stands in for an Ollama server
    has_ui: bool = True
    static_path: Path | None = None                 # files that are served at /, in place of the page that is there
    has_slots: bool = True                          # GET /slots
    has_metrics: bool = False                       # GET /metrics
    has_props: bool = False                         # POST /props
    has_embeddings: bool = False
    has_reranking: bool = False
    pooling: Pooling | None = None                  # None: the model's
    embd_normalize: int = 2
    n_batch: int = 2048                             # tokens of which /infill makes its prompt
    slot_save_path: Path | None = None              # folder of saved slots
    record_path: Path | None = None                 # where a trace of all requests is written, without their text
    is_offline: bool = False                        # pull no model
    models_dir: Path | None = None
    models_max: int = 4                             # models that are loaded at the same time, where none is given
    models_preset: Path | None = None               # a file that describes models
    argv: tuple[str, ...] = ()                      # the command line, which goes before what that file says
    autoload: bool = True
    fake_delay_s: float = 0.0                       # of requests to one of several models, for tests of clients
    sleep_idle_s: float | None = None               # a model without requests is unloaded after so long
    options: ModelOptions = field(default_factory=ModelOptions)
    sampling_of: Callable[[Metadata], SamplingParams] = default_sampling        # of requests that do not say
    constraint: ConstraintSpec | None = None        # the same
    cache_prompt: bool = True                       # the same
    has_context_shift: bool = False                 # an answer goes on when the context is full
    n_keep: int = 0                                 # tokens at the beginning that stay then; -1: the prompt
    chat_template: str | None = None                # Jinja source, in place of the model's
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    uses_jinja: bool = True                         # tools and the model's own template
    reasoning_format: str = "auto"
    reasoning: str = "auto"                         # on, off
    reasoning_budget: int = -1
    reasoning_budget_message: str = ""
    prefill_assistant: bool = True
    parses_chats: bool = True                       # else all that a model writes is content
    is_spm_infill: bool = False
    is_verbose: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port}: expected 0 to 65535")
        if not 1 <= self.n_slots <= MAX_SLOTS:
            raise ConfigError(f"--parallel {self.n_slots}: expected 1 to {MAX_SLOTS}")
        if self.api_prefix and (not self.api_prefix.startswith("/") or self.api_prefix.endswith("/")):
            raise ConfigError(f"--api-prefix {self.api_prefix}: expected a path such as /llm")
        if self.slot_save_path is not None and not self.slot_save_path.is_dir():
            raise ConfigError(f"--slot-save-path {self.slot_save_path}: there is no such folder")

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return all(is_loopback(host) or host.endswith(".sock") for host in self.hosts)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, with or without brackets, is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
