"""Which files of the kernel cache are still of use."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggpy import config
from ggpy.kernels.cpu.cache import cache_folder, object_path
from ggpy.kernels.cpu.level import available_levels

UNFINISHED_S = 3600         # a file without a kernel's name that is older was left by a process that was killed

_OBJECT = re.compile(r"(?P<kernel>\w+\.\w+)-[0-9a-f]{16}\.o")


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """The files under the kernels folder."""

    current: list[Path]         # of this ggpy, compiler and processor, at any level that it can execute
    stale: list[Path]           # of other versions or processors, or of sources that have changed since


def kernel_files() -> KernelFiles:
    """Sort all files. Raises ConfigError if GGPY_HOME cannot work, ImportError without the compiler."""
    current: list[Path] = []
    stale: list[Path] = []
    alive = {cache_folder(level) for level in available_levels()}
    for folder, file in _files():
        if folder not in alive:
            stale.append(file)
        elif (match := _OBJECT.fullmatch(file.name)) is not None:
            (current if object_path(match["kernel"]).name == file.name else stale).append(file)
        elif time.time() - file.stat().st_mtime > UNFINISHED_S:
            stale.append(file)
    return KernelFiles(current, stale)


def _files() -> Iterator[tuple[Path, Path]]:
    if not config.kernels_dir().is_dir():
        return
    for folder in sorted(config.kernels_dir().iterdir()):
        if folder.is_dir() and not folder.is_symlink():
            yield from ((folder, file) for file in sorted(folder.iterdir()) if file.is_file())


def remove_stale() -> tuple[int, int]:
    """Delete the stale files and the folders that they leave empty; returns how many and of how many bytes."""
    stale = kernel_files().stale
    size_bytes = 0
    for file in stale:
        size_bytes += file.stat().st_size
        file.unlink()
    for folder in {file.parent for file in stale}:
        with suppress(OSError):         # it holds other files
            folder.rmdir()
    return len(stale), size_bytes
