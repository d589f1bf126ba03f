"""Engines without a model that a process can be told to open, by the names of these functions."""

import os
from collections.abc import Callable

from ggpy.engine.core import EngineCore
from ggpy.errors import GGUFError
from tests.engine.conftest import Driver

Progress = Callable[[str, int, int], None]

N_CTX = 4096


def load_hashed(progress: Progress) -> EngineCore:
    """The engine on the fake backend of conftest.py, with room for long answers."""
    progress("some.kernel", 1, 2)
    core: EngineCore = Driver(n_pages=4 * N_CTX // 32, n_ctx=N_CTX, max_running=8).core
    return core


def load_missing(progress: Progress) -> EngineCore:
    """A model that is no good."""
    raise GGUFError("model.gguf: expected the magic GGUF, found ABCD")


def load_broken(progress: Progress) -> EngineCore:
    """A bug."""
    raise ZeroDivisionError("a bug")


def load_dying(progress: Progress) -> EngineCore:
    """A process that ends while it opens its model."""
    os._exit(7)
