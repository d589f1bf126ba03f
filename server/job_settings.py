"""How a request is answered, as llama-server's replies show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.server.sampling_fields import RANDOM_SEED
from ggpy.text import Tokenizer

PLAIN = ("temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
         "xtc_probability", "xtc_threshold", "typical_p")
PENALTIES = ("repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
             "dry_allowed_length")
MIROSTAT = ("mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay")


def settings_object(params: SamplingParams, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The short form, of /props and /slots; `others` has what is no sampling parameter."""
    others = others or {}
    n_predict = -1 if params.max_tokens is None else params.max_tokens
    return {
        "seed": RANDOM_SEED if params.seed is None else params.seed,
        **{name: getattr(params, name) for name in PLAIN},
        "repeat_last_n": -1 if params.repeat_last_n is None else params.repeat_last_n,
        **{name: getattr(params, name) for name in PENALTIES},
        "dry_penalty_last_n": -1 if params.dry_penalty_last_n is None else params.dry_penalty_last_n,
        **{name: getattr(params, name) for name in MIROSTAT},
        "max_tokens": n_predict, "n_predict": n_predict, "n_keep": others.get("n_keep", 0),
        "n_discard": others.get("n_discard", 0), "ignore_eos": params.ignore_eos,
        "stream": others.get("stream", False), "n_probs": others.get("n_probs", 0), "min_keep": params.min_keep,
        "chat_format": others.get("chat_format", "Content-only"),
        "reasoning_format": others.get("reasoning_format", "deepseek"),
        "reasoning_in_content": others.get("reasoning_in_content", False),
        "generation_prompt": others.get("generation_prompt", ""), "samplers": list(params.samplers),
        "speculative.types": others.get("speculative.types", "none"),
        "timings_per_token": others.get("timings_per_token", False),
        "post_sampling_probs": others.get("post_sampling_probs", False), "backend_sampling": False,
        "lora": others.get("lora", []),
    }


def full_settings(params: SamplingParams, constraint: ConstraintSpec | None, tokenizer: Tokenizer,
                  others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The full form, `generation_settings`. A bias of minus infinity is null in JSON."""
    banned = sorted(tokenizer.eog_ids) if params.ignore_eos else []
    return {
        **settings_object(params, others), "dry_sequence_breakers": list(params.dry_sequence_breakers),
        "stop": list(params.stop),
        "logit_bias": [{"bias": bias, "token": token} for token, bias in
                       (*params.logit_bias, *((token, float("-inf")) for token in banned))],
        "grammar": "" if constraint is None else constraint.source,
        "grammar_lazy": constraint is not None and bool(constraint.after),
        "grammar_triggers": [] if constraint is None else list(constraint.after), "preserved_tokens": [],
    }
