"""What llama.cpp and a float32 forward pass say about the catalogue's models: tests/data/logits and generate."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.golden.divergence import Float32, Float64

DATA = Path(__file__).parents[1] / "data"
PROMPTS = ("english", "code", "chat", "long")
N_TAIL = 48
"""Positions at the end of a prompt over which divergence from float32 is averaged."""


@dataclass(frozen=True, slots=True)
class LastLogits:
    """Logits of `ids` (k,) at a prompt's last position; the other tokens only as `rest`, their logsumexp."""

    ids: NDArray[np.int64]
    logits: Float32
    rest: float

    @property
    def log_probs(self) -> Float64:
        """Log-probabilities (k + 1,), those of all other tokens together at the end."""
        all_logits = np.append(self.logits.astype(np.float64), self.rest)
        log_probs: Float64 = all_logits - np.logaddexp.reduce(all_logits)
        return log_probs


@dataclass(frozen=True, slots=True)
class GreedyText:
    """The most probable continuation, llama.cpp's: `margins` are ln p(best) - ln p(second) of each step."""

    ids: list[int]
    margins: list[float]
    text: str

    def decisive_run(self, tolerance: float) -> slice:
        """The longest run of steps whose margins are all at least `tolerance`."""
        best, start = slice(0, 0), 0
        for step, margin in enumerate(self.margins):
            if margin < tolerance:
                start = step + 1
            elif step + 1 - start > best.stop - best.start:
                best = slice(start, step + 1)
        return best


@dataclass(frozen=True, slots=True)
class GoldenPrompt:
    """One prompt of n tokens. Logits at position i are of token i + 1."""

    text: str
    ids: list[int]                              # with special tokens added and parsed
    llama_cpp_last: LastLogits
    f32_last: LastLogits
    llama_cpp_next_logprob: Float32             # (n - 1,) of ids[i + 1] at position i
    f32_next_logprob: Float32
    llama_cpp_argmax: NDArray[np.int32]         # (n,)
    top_positions: NDArray[np.int32]            # (16,)
    top_ids: NDArray[np.int32]                  # (16, 20) llama.cpp's most probable
    top_logprobs: Float32                       # (16, 20)
    kl_llama_cpp_f32: float                     # mean KL(llama.cpp || float32) over the tail, without position 0
    greedy: GreedyText

    @property
    def tail_start(self) -> int:
        """First position of those compared with float32: the last N_TAIL, but never position 0.

        At position 0 llama.cpp's own logits can be far from float32: its 8-bit activations lose the first token's.
        """
        return max(1, len(self.ids) - N_TAIL)


@dataclass(frozen=True, slots=True)
class Golden:
    """One model's reference results."""

    model: str                                  # name in the catalogue
    prompts: Mapping[str, GoldenPrompt]

    @property
    def greedy_tolerance(self) -> float:
        """By how much ln p of a top token may differ between two runs that are both right."""
        return 0.8 if self.model.startswith("gemma3") else 0.5


def load_golden(model: str) -> Golden:
    """The results of a catalogue model."""
    stem = model.replace(":", "-")
    about = json.loads((DATA / "logits" / f"{stem}.json").read_text(encoding="utf-8"))
    greedy = json.loads((DATA / "generate" / f"{stem}.json").read_text(encoding="utf-8"))
    assert about["model"] == greedy["model"] == model
    with np.load(DATA / "logits" / f"{stem}.npz") as arrays:
        prompts = {name: _prompt(name, arrays, about["prompts"][name], GreedyText(**greedy["prompts"][name]))
                   for name in PROMPTS}
    return Golden(model, prompts)


def _prompt(name: str, arrays: Mapping[str, NDArray[np.generic]], about: dict[str, object],
            greedy: GreedyText) -> GoldenPrompt:
    mine = {key.removeprefix(f"{name}."): arrays[key] for key in arrays if key.startswith(f"{name}.")}
    last_ids = np.cumsum(mine.pop("last_id_steps"), dtype=np.int64)
    last = {source: LastLogits(last_ids, mine.pop(f"{source}_last_logits").astype(np.float32),
                               mine.pop(f"{source}_last_rest").item())
            for source in ("llama_cpp", "f32")}
    return GoldenPrompt(**about, **mine | {"ids": mine["ids"].tolist()}, greedy=greedy,    # type: ignore[arg-type]
                        llama_cpp_last=last["llama_cpp"], f32_last=last["f32"])
