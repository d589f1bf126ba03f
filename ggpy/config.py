"""Where ggpy keeps its files, and every environment variable that it reads.

Values are read when asked for, so a program may set a variable before its first call. A value that cannot work raises
ConfigError naming the variable. This module imports nothing of ggpy but its errors, so every layer may use it.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ggpy.errors import ConfigError

VARIABLES = {
    "GGPY_HOME": "folder of models, compiled kernels and state (default: the user's cache folder)",
    "GGPY_CPU": "the instructions that kernels may use, such as avx2 (default: the best this machine has)",
    "NO_COLOR": "anything: no colours",
    "LLAMA_ARG_*": "defaults of flags, as llama.cpp has them: LLAMA_ARG_CTX_SIZE, LLAMA_ARG_THREADS, ...",
    "LLAMA_CACHE": "the folder of models of Hugging Face, for `ggpy serve`; else HF_HUB_CACHE and the like name it",
    "OLLAMA_MODELS": "where an Ollama keeps its models, which `ggpy serve --ollama` serves, too (default: "
                     "~/.ollama/models)",
    "OLLAMA_HOST": "where `ggpy serve --ollama` listens: host, host:port or :port (default: 127.0.0.1:11434)",
    "OLLAMA_ORIGINS": "with --ollama: whose pages may ask beside those of this machine, as for --cors-origins",
    "OLLAMA_KEEP_ALIVE": "with --ollama: how long models stay without requests: seconds, or a duration; -1: always "
                         "(default: 5m)",
    "OLLAMA_CONTEXT_LENGTH": "with --ollama: the tokens that a request may have, as for -c",
    "LLAMA_SERVER_DEBUG_FAKE_TIMING": "1: each request to one of several models takes 2 s longer, for tests of clients",
    "AIP_MODE": "PREDICTION: `ggpy serve` runs in a container of Vertex AI, whose other variables these are",
    "AIP_HTTP_PORT": "the port then (default: 8080)",
    "AIP_PREDICT_ROUTE": "the path of predictions then (default: /predict)",
    "AIP_HEALTH_ROUTE": "a path beside /health then",
    "LLAMA_API_KEY": "keys of which requests to a server need one, separated by commas",
    "GGPY_REQUIRE_MODELS": "1: a test whose model is absent fails; 0 (default): it is skipped",
}
# variables that cli.md has, but not --help
RARE = frozenset({"AIP_MODE", "AIP_HTTP_PORT", "AIP_PREDICT_ROUTE", "AIP_HEALTH_ROUTE",
                  "LLAMA_SERVER_DEBUG_FAKE_TIMING", "GGPY_REQUIRE_MODELS"})

_TRUE = frozenset({"1", "true", "yes", "on", "enabled"})
_FALSE = frozenset({"0", "false", "no", "off", "disabled"})


def home() -> Path:
    """The folder of everything ggpy writes: GGPY_HOME, else `ggpy` in the user's cache folder; it may not exist yet.

    Raises ConfigError when GGPY_HOME names something that is not a folder, or the home of a user that there is not.
    """
    value = _variable("GGPY_HOME")
    if value is None:
        return Path(platformdirs.user_cache_dir("ggpy", appauthor=False))
    try:
        folder = Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"GGPY_HOME={value}: there is no such home folder; write the path without ~") from error
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"GGPY_HOME={value}: a file has that name; set it to a folder, or unset it")
    return folder


def write_advice(error: OSError, variable: str = "GGPY_HOME") -> str:
    """What to do about a folder of `variable` in which `error` let nothing be written."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):       # Windows has no quotas of that name
        return f"make room, or set {variable} to a folder on a larger disk"
    return f"set {variable} to a folder that you can write to"


def models_dir() -> Path:
    """Where pulled models lie, one folder each."""
    return home() / "models"


def store_dir() -> Path:
    """Where the models lie that were made under names of the user's own."""
    return home() / "store"


def ollama_dir() -> Path:
    """Where an Ollama on this machine keeps its models, if there is one."""
    return Path(os.path.expanduser(_variable("OLLAMA_MODELS") or "~/.ollama/models"))


def ollama_variable(name: str) -> str | None:
    """The value of OLLAMA_`name`; None when unset or empty."""
    return _variable(f"OLLAMA_{name}")


def kernels_dir() -> Path:
    """Where compiled kernels lie, one folder for each CPU and version of the kernels."""
    return home() / "kernels"


def state_dir() -> Path:
    """Where locks and other small state lie."""
    return home() / "state"


def cpu_level() -> str | None:
    """The level of instructions that the user wants, as written; None for the best that the machine has.

    Which levels exist and which of them this machine can run is for the kernels to say.
    """
    return _variable("GGPY_CPU")


def with_cpu_level(level: str) -> dict[str, str]:
    """What the environment of another process needs for `cpu_level` to be `level` there."""
    return {"GGPY_CPU": level}


def require_models() -> bool:
    """Whether a test whose model is absent fails instead of being skipped."""
    return flag("GGPY_REQUIRE_MODELS", default=False)


def no_color() -> bool:
    """Whether the user wants no colours, as https://no-color.org has it."""
    return _variable("NO_COLOR") is not None


def is_dumb_terminal() -> bool:
    """Whether the terminal can do nothing but show text."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def fake_delay_s() -> float:
    """By how long requests to one of several models are delayed, for tests of clients."""
    return 2.0 if flag("LLAMA_SERVER_DEBUG_FAKE_TIMING", default=False) else 0.0


@dataclass(frozen=True, slots=True)
class Vertex:
    """What a container of Vertex AI is to serve."""

    predict_path: str
    health_path: str | None         # None: /health alone
    port: int


def vertex() -> Vertex | None:
    """What the variables of Vertex AI say; None outside of it. Raises ConfigError."""
    if _variable("AIP_MODE") != "PREDICTION":
        return None
    port = _variable("AIP_HTTP_PORT") or "8080"
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"AIP_HTTP_PORT={port}: expected a port, 0 to 65535")
    health = _variable("AIP_HEALTH_ROUTE")
    return Vertex(f"/{(_variable('AIP_PREDICT_ROUTE') or 'predict').lstrip('/')}",
                  None if health is None else f"/{health.lstrip('/')}", int(port))


def use_llama_cache() -> None:
    """Let LLAMA_CACHE be the folder of models of Hugging Face, if it is set; to be called before any is looked for."""
    if (folder := _variable("LLAMA_CACHE")) is not None:
        os.environ["HF_HUB_CACHE"] = folder


def api_keys() -> list[str]:
    """The keys in LLAMA_API_KEY."""
    return [key.strip() for key in (_variable("LLAMA_API_KEY") or "").split(",") if key.strip()]


def llama_arg(name: str) -> str | None:
    """The value of LLAMA_ARG_`name`, llama.cpp's variable for a flag; None when unset or empty."""
    return os.environ.get(f"LLAMA_ARG_{name}", "").strip() or None


def llama_flag(name: str) -> bool | None:
    """The yes or no in LLAMA_ARG_`name`, None when unset; LLAMA_ARG_NO_`name` is a no whatever its value."""
    if f"LLAMA_ARG_NO_{name}" in os.environ:
        return False
    value = llama_arg(name)
    return None if value is None else _truth(f"LLAMA_ARG_{name}", value)


def flag(name: str, *, default: bool) -> bool:
    """The yes or no in variable `name`, `default` when it is unset; raises ConfigError for anything else."""
    value = _variable(name)
    return default if value is None else _truth(name, value)


def _truth(name: str, value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ConfigError(f"{name}={value}: expected 1 or 0")


def _variable(name: str) -> str | None:
    """The value of a known variable without blanks around it; None when unset or empty."""
    assert name in VARIABLES, f"{name} is not listed in VARIABLES"
    return os.environ.get(name, "").strip() or None
