"""Imports point one way: a lower layer never learns of a higher one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# what each layer may import besides itself, ggpy.errors and ggpy.arrays; reads from the bottom up
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "arrays": set(),
    "arguments": set(),
    "config": set(),
    "machine": set(),
    "gguf": set(),
    "formats": {"gguf"},
    "text": {"gguf"},
    "hub": {"config"},
    "graph": {"gguf", "formats"},
    "models": {"gguf", "formats", "graph"},
    "kernels": {"gguf", "formats", "config", "machine"},
    "backends": {"gguf", "formats", "graph", "kernels", "config", "machine"},
    "engine": {"text", "backends", "kernels"},
    "loading": {"arguments", "gguf", "text", "models", "backends", "engine", "machine"},
    "made": {"text", "hub", "engine", "machine"},
    "llm": {"arguments", "gguf", "text", "hub", "backends", "engine", "loading", "made"},
    "tools": {"gguf", "formats", "text", "hub", "graph", "models", "kernels", "backends", "engine", "loading", "made",
              "llm", "config", "machine"},
    "server": {"gguf", "formats", "text", "hub", "graph", "models", "kernels", "backends", "engine", "loading", "made",
               "tools", "config", "machine"},
    "cli": {"tools", "server", "config"},
    "__main__": {"cli"},
    "__init__": {"engine", "llm"},
}

DIALECTS = ("anthropic", "llama", "ollama", "openai")       # packages of the server
SHARED = ("web", "options", "model_pool", "context", "jobs", "chat")        # what they share, each what is before it


def modules() -> dict[str, Path]:
    """Every module of ggpy: dotted name -> file. `rglob` follows no links, so their folders are named."""
    folders = {"ggpy": ROOT / "ggpy", **{f"ggpy.{name}": ROOT / name for name in ("models", "server", "tools")}}
    found = {}
    for package, folder in folders.items():
        for file in folder.rglob("*.py"):
            parts = (*package.split("."), *file.relative_to(folder).with_suffix("").parts)
            found[".".join(parts)] = file
    return found


def imports(source: str, module: str) -> Iterator[tuple[str, int]]:
    """What `source` imports of ggpy, relative names made absolute, and the line; at any depth of nesting.

    Of `from ggpy.errors import RequestError` it is ggpy.errors.RequestError.

    `module` is the dotted name of the file, with `__init__` as the last part for a package.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            # what is imported may be a module itself, as in `from ggpy import config`
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target.split(".")[0] == "ggpy":
                yield target, node.lineno


def layer_of(module: str) -> str:
    """The folder or top-level module that a dotted name belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def violations(source: str, module: str) -> list[str]:
    """A line for every import in `source` that its layer may not do."""
    layer = layer_of(module)
    allowed = ALLOWED[layer] | {layer, "errors", "arrays"}
    return [
        f"{module}, line {line}: {layer} may not import {target}"
        for target, line in imports(source, module)
        if layer_of(target) not in allowed
    ]


def test_every_import_points_down() -> None:
    """The whole tree, every file of it."""
    found = [line for module, file in modules().items() for line in violations(file.read_text("utf-8"), module)]
    assert found == []


def dialect_of(module: str) -> str | None:
    """The dialect whose package of the server a dotted name belongs to; None: it is of none."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["ggpy", "server"] and len(parts) > 2 and parts[2] in DIALECTS else None


def leanings(source: str, module: str) -> list[str]:
    """A line for every import in `source`, a module of the server, of a dialect that is not its own.

    ggpy.server.app, which puts the server together, may import all of them. ggpy.server itself has all of them below
    it, so nobody may import that.
    """
    if module == "ggpy.server.app":
        return []
    own = dialect_of(module)
    return [
        f"{module}, line {line}: {target}"
        for target, line in imports(source, module)
        if target == "ggpy.server" or dialect_of(target) not in (own, None)
    ]


def test_no_dialect_of_the_server_leans_on_another() -> None:
    """What they share is outside of their packages, and knows none of them."""
    found = [line for module, file in modules().items() if module.startswith("ggpy.server.")
             for line in leanings(file.read_text("utf-8"), module)]
    assert found == []


def test_every_part_of_the_server_is_known() -> None:
    """A new one is a dialect, or does not know any."""
    assert {file.parent.name for file in (ROOT / "server").glob("*/__init__.py")} == {*DIALECTS, *SHARED} - {"context"}


def part_of(module: str) -> str:
    """The part of the server in SHARED that a dotted name belongs to; "": none."""
    return next((name for name in SHARED if f"{module}.".startswith(f"ggpy.server.{name}.")), "")


def test_what_the_dialects_share_is_built_in_order() -> None:
    """HTTP knows no model, and models know no request."""
    found = [
        f"{module}, line {line}: {target}"
        for module, file in modules().items() if part_of(module)
        for target, line in imports(file.read_text("utf-8"), module)
        if part_of(target) in SHARED[SHARED.index(part_of(module)) + 1:]
    ]
    assert found == []


@pytest.mark.parametrize(("module", "source", "lines"), [
    ("ggpy.server.model_pool.models", "from ggpy.server.ollama.options import read_options", 1),
    ("ggpy.server.model_pool.models", "from ggpy.server import ollama", 1),
    ("ggpy.server.model_pool.models", "def f():\n    from ggpy.server.ollama import options", 1),
    ("ggpy.server.context", "from . import errors, llama", 1),
    ("ggpy.server.model_pool.models", "from ggpy import server", 1),
    ("ggpy.server.model_pool.models", "import ggpy.server", 1),
    ("ggpy.server.model_pool.models", "from ggpy.server.chat.core import prepare\nfrom ggpy.server.web import sse", 0),
    ("ggpy.server.chat.core", "from ggpy.server.openai.reply import chat_object", 1),
    ("ggpy.server.chat.core", "from ..llama import lora", 1),
    ("ggpy.server.ollama.chat", "from ggpy.server.chat.request import read_chat", 0),
    ("ggpy.server.ollama.chat", "from ggpy.server.openai import reply", 1),
    ("ggpy.server.ollama.chat", "from ggpy.server.openai.reply import chat_object", 1),
    ("ggpy.server.ollama.chat", "from ggpy.server.ollama import lines", 0),
    ("ggpy.server.app", "from ggpy.server.llama import api", 0),
])
def test_leanings_are_found_however_they_are_written(module: str, source: str, lines: int) -> None:
    """Of a module, of a package, and of names in them."""
    assert len(leanings(source, module)) == lines


def test_environment_variables_are_read_in_config_alone() -> None:
    """No other module names one of them, so `ggpy --help` lists them all."""
    naming = {
        module for module, file in modules().items() for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"GGPY_[A-Z_]+", node.value)
    }
    assert naming == {"ggpy.config"}


def test_every_layer_is_known() -> None:
    """A new folder or top-level module needs a line in ALLOWED; a link does not hide a layer."""
    layers = {layer_of(module) for module in modules()}
    assert layers <= set(ALLOWED)
    assert {"gguf", "graph", "models", "server", "tools", "cli"} <= layers


@pytest.mark.parametrize(("module", "source", "lines"), [
    ("ggpy.gguf.reader", "from ggpy.formats import q8", 1),
    ("ggpy.gguf.reader", "from ..formats.q8 import BLOCK", 1),
    ("ggpy.gguf.reader", "from .types import TensorType\nfrom ggpy.errors import GGUFError", 0),
    ("ggpy.gguf.__init__", "from .reader import GGUFFile", 0),
    ("ggpy.text.chat", "import ggpy.engine.core", 1),
    ("ggpy.text.chat", "def f():\n    from ggpy import engine, gguf", 1),
    ("ggpy.graph.plan", "from ggpy.backends.cpu import Backend", 1),
    ("ggpy.backends.cpu", "from ggpy.graph.plan import Plan", 0),
    ("ggpy.models.llama", "from ggpy.backends import cpu", 1),
    ("ggpy.engine.core", "from ggpy import server", 1),
    ("ggpy.cli", "from ggpy.tools import run", 0),
    ("ggpy.config", "import numpy\nfrom ggpy.errors import ConfigError", 0),
])
def test_violations_are_found_however_they_are_written(module: str, source: str, lines: int) -> None:
    """Absolute, relative, nested in a function, or as a name imported from ggpy itself."""
    assert len(violations(source, module)) == lines
