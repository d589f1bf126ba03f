"""Low-rank adapters (LoRA, Hu et al., 2021): what they add to the matrices of a model. No device is named here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Scales = tuple[tuple[int, float], ...]      # (number of an adapter, how much of it), each at most once; others: nothing


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """What is added to a matrix (n_out, n_in): b @ a, times the scale that a row asks for."""

    a: Float32      # (rank, n_in)
    b: Float32      # (n_out, rank); it has the adapter's own factor alpha / rank in it


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One adapter, in float32."""

    path: Path
    fingerprint: str                                                    # of its file
    linear: Mapping[str, LowRank] = field(default_factory=dict)         # by the name of a Linear's weight
    embedding: LowRank | None = None                                    # of the token embedding: n_in are the tokens
    task_name: str = ""
    prompt_prefix: str = ""


def embedding_term(term: LowRank, tokens: npt.NDArray[np.integer], scale: float) -> Float32:
    """What is added to the embeddings of `tokens` (n,): (n, n_embd). The bits of a row follow from its token alone."""
    total = np.zeros((len(tokens), len(term.b)), np.float32)
    for row, column in zip(term.a, term.b.T, strict=True):
        total += row[tokens, None] * column
    return total * np.float32(scale)
