"""The disk cache of compiled kernels: one object file for each kernel, named by everything that its code depends on.

The folder is named by what all kernels share (Numba, llvmlite, the processor and the level), the file by the kernel's
own sources: its module and the kernel and format modules that it imports. Numba's own cache would miss a change in an
imported file.
"""

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ggpy.config import kernels_dir
from ggpy.kernels.cpu.level import Level, current_level, processor_features

DIGEST_BYTES = 32
PACKAGE = Path(__file__).parents[2]
_IMPORT = re.compile(rb"^ *from ggpy\.((?:kernels\.cpu|formats)\.\w+) import", re.MULTILINE)


def cache_folder(level: Level | None = None) -> Path:
    """Where kernels for this processor and `level` (None: the current one), made with this compiler, are kept."""
    level = level or current_level()
    # what the processor has, not what this process is allowed: a worker that compiles may be allowed something else
    facts = (*_compiler(), sys.platform, level.name, *sorted(processor_features()))
    return kernels_dir() / f"{level.name}-{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:16]}"


@cache
def _compiler() -> tuple[str, str]:
    return version("numba"), version("llvmlite")


def object_path(name: str) -> Path:
    """The object file of the kernel `name`, "module.function", as its sources were when this process first asked."""
    return cache_folder() / f"{name}-{_sources_digest(name.partition('.')[0])}.o"


@cache
def _sources_digest(module: str) -> str:
    """A name for the sources that the kernels of `module` are made of, and made by."""
    modules = _closure(f"kernels.cpu.{module}") | _closure("kernels.cpu.compile")
    return hashlib.sha256(b"".join(_source_digest(each) for each in sorted(modules))).hexdigest()[:16]


def modules_of(name: str) -> frozenset[str]:
    """The modules that the kernel `name` is made of."""
    return _closure(f"kernels.cpu.{name.partition('.')[0]}")


def source_bytes(modules: Iterable[str]) -> int:
    """How much source `modules` have: a rough measure of how long compiling takes."""
    return sum(len(_source(module)) for module in modules)


@cache
def _source(module: str) -> bytes:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    return path.read_bytes() if path.exists() else b""


@cache
def _source_digest(module: str) -> bytes:
    return hashlib.sha256(_source(module)).digest()


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(name.decode() for name in _IMPORT.findall(_source(module)))


@cache
def _closure(module: str) -> frozenset[str]:
    """`module` and the kernel and format modules that it imports, directly or not."""
    found = {module}
    pending = [module]
    while pending:
        for name in _imports(pending.pop()):
            if name not in found:
                found.add(name)
                pending.append(name)
    return frozenset(found)


def write_object(path: Path, code: bytes) -> None:
    """Writes `code` behind its digest, so that a torn file is never mistaken for a kernel.

    Who may read it is for the umask to say, as of other files: another user may run what one has compiled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"tmp{secrets.token_hex(8)}")
    with temporary.open("xb") as file:
        file.write(hashlib.sha256(code).digest() + code)
    os.replace(temporary, path)


def read_object(path: Path) -> bytes | None:
    """The object code in `path`, or None if it is absent, damaged or not for this user to read."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    code = data[DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == data[:DIGEST_BYTES] else None
