"""One engine's logits of a golden prompt, boiled down to what is compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpy import LLM
from tests.golden.data import Golden, GoldenPrompt, LastLogits
from tests.golden.divergence import Float32, Float64, grouped, kl_divergence, log_softmax, logsumexp

N_CTX = 1024            # room for the longest prompt and its answer


@dataclass(frozen=True, slots=True)
class Measured:
    """Results on one prompt of n tokens and its greedy continuation."""

    tail_logits: Float32                # (n - prompt.tail_start, n_vocab) of the prompt's last positions
    next_logprob: Float64               # (n - 1,) of ids[i + 1] at position i
    argmax: NDArray[np.int64]           # (n,)
    top_logprobs: Float64               # (len(top_positions), 21) of llama.cpp's top 20 and of all others together
    greedy_gaps: Float64                # (n_greedy,) ln p(own best) - ln p(llama.cpp's choice), given its earlier ones

    def last_kl(self, last: LastLogits) -> float:
        """KL(last || ours) at the prompt's last position."""
        return float(kl_divergence(last.log_probs, grouped(self.tail_logits[-1], last.ids)))

    def last_delta(self, last: LastLogits) -> float:
        """Largest difference of a logit at the prompt's last position."""
        return float(np.abs(self.tail_logits[-1][last.ids] - last.logits).max())

    def top_kl(self, prompt: GoldenPrompt) -> Float64:
        """KL(llama.cpp || ours) at the prompt's top_positions, grouped into the top 20 and the rest."""
        top = prompt.top_logprobs.astype(np.float64)
        rest = np.log(np.maximum(1 - np.exp(top).sum(axis=1), 1e-12))   # logprobs are float32: their sum may pass 1
        return kl_divergence(np.column_stack([top, rest]), self.top_logprobs)

    def tail_kl(self, other: "Measured") -> Float64:
        """KL(ours || other) at each position of the tail."""
        return np.array([kl_divergence(log_softmax(p), log_softmax(q))
                         for p, q in zip(self.tail_logits, other.tail_logits, strict=True)])


def measure(prompt: GoldenPrompt, logits_of: Callable[[Sequence[int]], Float32]) -> Measured:
    """Runs the prompt with llama.cpp's continuation as one text; `logits_of` gives the logits (n, n_vocab) of tokens.

    Causality makes the continuation harmless to the prompt's own positions.
    """
    n = len(prompt.ids)
    tokens = np.array([*prompt.ids, *prompt.greedy.ids])
    logits = logits_of(tokens[:-1].tolist())
    chosen = np.take_along_axis(logits, tokens[1:, None], axis=1)[:, 0]
    return Measured(
        tail_logits=logits[prompt.tail_start:n].copy(),
        next_logprob=chosen[: n - 1] - logsumexp(logits[: n - 1]),
        argmax=logits[:n].argmax(axis=1),
        top_logprobs=np.array([grouped(logits[position], ids)
                               for position, ids in zip(prompt.top_positions, prompt.top_ids, strict=True)]),
        greedy_gaps=(logits[n - 1:].max(axis=1) - chosen[n - 1:]).astype(np.float64))


def measure_all(golden: Golden, llm: LLM) -> dict[str, Measured]:
    """`measure` of every prompt."""
    return {name: measure(prompt, lambda ids: llm.logits(ids, "all")) for name, prompt in golden.prompts.items()}
