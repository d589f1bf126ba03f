"""How a model of Hugging Face is named, `hf:user/repo:QUANT`, and which files of a repository the name means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ggpy.errors import PullError, printable

PREFIX = "hf:"
DEFAULT_QUANT = "Q4_K_M"
NO_MODEL = ("mmproj", "imatrix")        # GGUF files that come with a model but are none

_SPEC = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w./-]+))?", re.ASCII)
_QUANT = re.compile(r"(?<![A-Z0-9])((?:UD-)?(?:I?Q\d|TQ\d|MXFP4|NVFP4|B?F16|F32)\w*)", re.IGNORECASE)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository and what to take of it: a quantisation, a file name, or None for the usual one."""

    repo: str
    quant: str | None

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f":{self.quant}" if self.quant else "")


def quant_of(name: str) -> str:
    """The quantisation in a file's name; empty if there is none that ggpy recognises."""
    found = _QUANT.findall(name.removesuffix(".gguf"))
    return found[-1] if found else ""


def is_hub_name(spec: str) -> bool:
    return spec[: len(PREFIX)].lower() == PREFIX


def hub_name(repo: str) -> str:
    """What the flag -hf is given, as a MODEL: "user/repo:Q8_0" is "hf:user/repo:Q8_0"."""
    return repo if is_hub_name(repo) else PREFIX + repo


def is_repo(text: str) -> bool:
    """Whether `text` reads as user/repo[:QUANT]."""
    return _SPEC.fullmatch(text) is not None and not text.lower().endswith(".gguf")


def parse(spec: str) -> HubModel:
    """Read `hf:user/repo[:QUANT]`; raises PullError for anything else."""
    match = _SPEC.fullmatch(spec[len(PREFIX) :])
    if match is None:
        raise PullError(f"{spec}: expected hf:user/repo or hf:user/repo:QUANT, such as "
                        "hf:unsloth/Qwen3-0.6B-GGUF:Q8_0")
    return HubModel(match["repo"], match["quant"])


def choose(names: Sequence[str], model: HubModel) -> list[str]:
    """The files among `names` that make up `model`: one, or all parts of a split one in order.

    The quantisation may stand anywhere in a name, in any case of letters. Raises PullError if there is none, or a part
    is missing.
    """
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf")
                   and not any(word in name.lower() for word in NO_MODEL))
    if not ggufs:
        raise PullError(f"{model}: https://huggingface.co/{model.repo} has no GGUF file; look for a repository that "
                        "has, often the name with -GGUF behind it")
    found = _matching(ggufs, model.quant or DEFAULT_QUANT)
    if not found and model.quant is not None:
        raise PullError(f"{model}: no GGUF file in {model.repo} has {model.quant} in its name; there are "
                        + ", ".join(printable(name) for name in ggufs[:40]))
    first = (found or ggufs)[0]
    part = _PART.search(first)
    if part is None:
        return [first]
    n_parts = int(part[2])
    stem = first[: part.start()]
    parts = [name for name in ggufs if name.startswith(stem) and (match := _PART.search(name))
             and match.start() == len(stem) and match[2] == part[2]]
    if len(parts) != n_parts:
        raise PullError(f"{model}: {printable(stem)} is split into {n_parts} files, of which {model.repo} has "
                        f"{len(parts)}; name another quantisation")
    return parts


def _matching(names: Sequence[str], quant: str) -> list[str]:
    if quant.lower().endswith(".gguf"):
        return [name for name in names if name.lower() == quant.lower()]
    pattern = re.compile(rf"(?<![a-z0-9_]){re.escape(quant)}(?![a-z0-9_])", re.IGNORECASE)
    return [name for name in names if pattern.search(name)]
