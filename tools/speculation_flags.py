"""Flags of speculative decoding, with llama.cpp's names."""

from __future__ import annotations

import argparse
from typing import Any

from ggpy.engine.speculation import SpeculationConfig
from ggpy.engine.speculation.config import LIMITS, ProposerName
from ggpy.tools import inputs
from ggpy.tools.flags import whole_number

DEFAULTS = SpeculationConfig()
# how llama.cpp calls its ways to draft -> what drafts here
TYPES: dict[str, tuple[ProposerName, ...]] = {
    "none": (), "draft-simple": ("draft",),
    **dict.fromkeys(("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"), ("ngram", "past")),
}

def add_speculation_flags(parser: argparse.ArgumentParser) -> None:
    """Who drafts tokens, and how many."""
    group = parser.add_argument_group("speculative decoding")
    group.add_argument("--spec-type", type=_proposers, metavar="TYPES", help="who drafts the next tokens, which saves "
                       "time and never changes answers: none, ngram-simple (text that occurred before; the other names "
                       "that begin with ngram mean the same), draft-simple (-md), or several, separated by commas "
                       "(default: ngram-simple, and draft-simple with -md)")
    group.add_argument("-md", "--model-draft", "--spec-draft-model", dest="draft_model", metavar="MODEL",
                       help="a smaller model with the same vocabulary, that drafts")
    group.add_argument("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf", dest="draft_model", type=inputs.hub_model,
                       metavar="user/repo[:QUANT]", help="the same as hf:user/repo[:QUANT] for -md")
    group.add_argument("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft", dest="draft_n_max",
                       type=whole_number(*LIMITS["n_max"]), default=DEFAULTS.n_max, metavar="N",
                       help=f"tokens of a draft, at most (default: {DEFAULTS.n_max})")
    group.add_argument("--spec-draft-n-min", "--draft-min", "--draft-n-min", dest="draft_n_min",
                       type=whole_number(*LIMITS["n_min"]), default=DEFAULTS.n_min, metavar="N",
                       help=f"shorter drafts are not tried (default: {DEFAULTS.n_min})")
    group.add_argument("--spec-draft-p-min", "--draft-p-min", dest="draft_p_min", type=_probability,
                       default=DEFAULTS.p_min, metavar="P",
                       help=f"drafts end before a token less probable than this (default: {DEFAULTS.p_min:g})")
    group.add_argument("--spec-synth-rates", dest="synthetic_rates", type=_probabilities, default=(), metavar="P,P,...",
                       help="for measurements: the draft model's token at each position is taken as often as this, "
                       "right or not, so answers are not the model's")


def speculation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of LLM. Ends the process with 2 if they do not fit together."""
    proposers = DEFAULTS.proposers if args.spec_type is None else args.spec_type
    if args.draft_n_min > args.draft_n_max:
        args.fail(f"--spec-draft-n-min {args.draft_n_min}: expected at most {args.draft_n_max}, as --spec-draft-n-max "
                  "has it")
    if args.spec_type and "draft" in args.spec_type and args.draft_model is None:
        args.fail("--spec-type draft-simple: expected -md, the model that drafts")
    return {"draft_model": args.draft_model,
            "speculation": SpeculationConfig(proposers=proposers, n_max=args.draft_n_max, n_min=args.draft_n_min,
                                             p_min=args.draft_p_min, synthetic_rates=args.synthetic_rates)}


def _proposers(text: str) -> tuple[ProposerName, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TYPES:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(TYPES)}, separated by commas")
    return tuple(dict.fromkeys(proposer for name in names for proposer in TYPES[name]))


def _probabilities(text: str) -> tuple[float, ...]:
    return tuple(map(_probability, text.split(",")))


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("expected a probability, 0 to 1")
    return value
