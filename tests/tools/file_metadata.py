"""Metadata as a model file has it."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ggpy.gguf import GGUFFile, GGUFWriter, Metadata


def file_metadata(values: Mapping[str, Any]) -> Metadata:
    """The metadata of a file that holds these keys; floats lose their last bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        writer = GGUFWriter(path)
        for key, value in values.items():
            writer.add(key, value)
        writer.write()
        metadata = GGUFFile(path).metadata
        dict(metadata)          # decoded while the file is there
    return metadata
