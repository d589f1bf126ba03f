"""What somebody may have meant who names a model file that is not there."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

SUFFIX = ".gguf"
OTHER_SUFFIXES = (".ggml", ".bin", ".safetensors")      # of model files that are none for ggpy
MAX_NEAR = 2
LEAST_PREFIX = 3        # characters; shorter beginnings fit too much


def is_path(spec: str) -> bool:
    """Whether `spec` is plainly a file's path: it has a folder, or an ending like that of a model file."""
    suffix = os.path.splitext(spec)[1].lower()
    has_ending = bool(suffix in OTHER_SUFFIXES or difflib.get_close_matches(suffix, [SUFFIX], cutoff=0.7))
    return has_ending or spec.startswith("~") or any(separator in spec for separator in ("/", os.sep))


def near_files(path: Path) -> list[str]:
    """GGUF files in the folder of `path` that go on as its name does, or else are called nearly so; two at most."""
    folder = path.parent
    stem = path.stem if is_path(path.name) else path.name
    files = sorted(file for file in folder.glob("*") if file.suffix.lower() == SUFFIX)
    wanted = stem.lower()
    same = [file for file in files if file.stem.lower() == wanted]
    longer = [file for file in files if len(wanted) >= LEAST_PREFIX and file.stem.lower().startswith(wanted)]
    stems = {file.stem.lower(): file for file in files}
    close = [stems[name] for name in difflib.get_close_matches(wanted, stems, n=MAX_NEAR)]
    return [str(path.with_name(file.name)) for file in (same or longer or close)[:MAX_NEAR]]
