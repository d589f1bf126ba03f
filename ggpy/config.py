"""Where ggpy keeps its files, and every environment variable that it reads.

Values are read when asked for, so a program may set a variable before its first call. A value that cannot work raises
ConfigError naming the variable. This module imports nothing of ggpy but its errors, so every layer may use it.
"""

import os
from pathlib import Path

import platformdirs

from ggpy.errors import ConfigError

VARIABLES = {
    "GGPY_HOME": "folder of models, compiled kernels and state (default: the user's cache folder)",
    "GGPY_CPU": "the instructions that kernels may use, such as avx2 (default: the best this machine has)",
    "GGPY_REQUIRE_MODELS": "1: a test whose model is absent fails; 0 (default): it is skipped",
}

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def home() -> Path:
    """The folder of everything ggpy writes: GGPY_HOME, else `ggpy` in the user's cache folder; it may not exist yet.

    Raises ConfigError when GGPY_HOME names something that is not a folder.
    """
    value = _variable("GGPY_HOME")
    if value is None:
        return Path(platformdirs.user_cache_dir("ggpy", appauthor=False))
    folder = Path(value).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"GGPY_HOME={value}: a file has that name; set it to a folder, or unset it")
    return folder


def models_dir() -> Path:
    """Where pulled models lie, one folder each."""
    return home() / "models"


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


def require_models() -> bool:
    """Whether a test whose model is absent fails instead of being skipped."""
    return flag("GGPY_REQUIRE_MODELS", default=False)


def flag(name: str, *, default: bool) -> bool:
    """The yes or no in variable `name`, `default` when it is unset; raises ConfigError for anything else."""
    value = _variable(name)
    if value is None:
        return default
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ConfigError(f"{name}={value}: expected 1 or 0")


def _variable(name: str) -> str | None:
    """The value of a known variable without blanks around it; None when unset or empty."""
    assert name in VARIABLES, f"{name} is not listed in VARIABLES"
    return os.environ.get(name, "").strip() or None
