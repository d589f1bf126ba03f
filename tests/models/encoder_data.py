"""Tiny random encoders with llama.cpp's hidden states and scores: written from seeds when asked for.

`tests/data/encoders/README.md` describes the data.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.models.arch_data import write_model

DATA = Path(__file__).parents[1] / "data" / "encoders"
TOLERANCE = 1e-2        # llama.cpp rounds GELU through float16
SILU_TOLERANCE = 1e-3


@dataclass(frozen=True)
class EncoderModel:
    """One model: its file, a text and llama.cpp's hidden states (n_tokens, n_embd) of it.

    `scores` (n_classes,) are those of a classifier, None where the model has none.
    """

    name: str
    path: Path
    n_ctx: int
    tokens: NDArray[np.int32]
    hidden: NDArray[np.float32]
    scores: NDArray[np.float32] | None

    @property
    def tolerance(self) -> float:
        """Largest difference to a hidden state that float32 arithmetic may have."""
        return SILU_TOLERANCE if self.name == "nomic-bert" else TOLERANCE


@cache
def _specs() -> dict[str, Any]:
    specs: dict[str, Any] = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    return specs


def encoder_names() -> list[str]:
    """Names of all models, in order; what stands before the first underscore is the architecture."""
    return sorted(_specs())


def load_encoder(name: str, folder: Path) -> EncoderModel:
    """The model `name`, its file written into `folder` unless it is there already."""
    spec = _specs()[name]
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_model(path, name, spec)
    with np.load(DATA / f"{name}.npz") as data:
        return EncoderModel(name, path, spec["n_ctx"], data["tokens"], data["hidden"],
                            data.get("scores"))
