"""How a request is answered, as llama-server's replies show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ggpy.backends.base import Scales
from ggpy.engine.config import RANDOM_SEED, SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.text import Tokenizer

PLAIN = ("temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
         "xtc_probability", "xtc_threshold", "typical_p")
PENALTIES = ("repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
             "dry_allowed_length")
MIROSTAT = ("mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    """What a request wants of its reply beside how tokens are chosen, as settings objects show it."""

    is_stream: bool = False
    n_keep: int = 0                     # as a request has it; negative: the whole prompt
    n_discard: int = 0
    n_probs: int = 0
    is_after_sampling: bool = False     # what probabilities are
    has_timings: bool = False           # in each event
    adapters: Scales = ()
    reasoning_format: str = "deepseek"
    has_reasoning_in_content: bool = False


USUAL = ReplySettings()


def settings_object(params: SamplingParams, reply: ReplySettings = USUAL) -> dict[str, Any]:
    """The short form, of /props and /slots."""
    n_predict = -1 if params.max_tokens is None else params.max_tokens
    return {
        "seed": RANDOM_SEED if params.seed is None else params.seed,
        **{name: getattr(params, name) for name in PLAIN},
        "repeat_last_n": -1 if params.repeat_last_n is None else params.repeat_last_n,
        **{name: getattr(params, name) for name in PENALTIES},
        "dry_penalty_last_n": -1 if params.dry_penalty_last_n is None else params.dry_penalty_last_n,
        **{name: getattr(params, name) for name in MIROSTAT},
        "max_tokens": n_predict, "n_predict": n_predict, "n_keep": reply.n_keep, "n_discard": reply.n_discard,
        "ignore_eos": params.ignore_eos, "stream": reply.is_stream, "n_probs": reply.n_probs,
        "min_keep": params.min_keep, "chat_format": "Content-only", "reasoning_format": reply.reasoning_format,
        "reasoning_in_content": reply.has_reasoning_in_content, "generation_prompt": "",
        "samplers": list(params.samplers), "speculative.types": "none", "timings_per_token": reply.has_timings,
        "post_sampling_probs": reply.is_after_sampling, "backend_sampling": False,
        "lora": [{"id": i, "scale": scale} for i, scale in reply.adapters],
    }


def full_settings(short: dict[str, Any], params: SamplingParams, constraint: ConstraintSpec | None,
                  tokenizer: Tokenizer) -> dict[str, Any]:
    """The full form, `generation_settings`, which begins with the `short` one. A bias of minus infinity is null."""
    banned = sorted(tokenizer.eog_ids) if params.ignore_eos else []
    return {
        **short, "dry_sequence_breakers": list(params.dry_sequence_breakers),
        "stop": list(params.stop),
        "logit_bias": [{"bias": bias, "token": token} for token, bias in
                       (*params.logit_bias, *((token, float("-inf")) for token in banned))],
        "grammar": "" if constraint is None else constraint.source,
        "grammar_lazy": constraint is not None and bool(constraint.after),
        "grammar_triggers": [] if constraint is None else list(constraint.after), "preserved_tokens": [],
    }
