"""The tokens that llama.cpp chooses from the same logits with the same seed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling import Sampler
from ggpy.gguf import GGUFFile
from ggpy.text import Tokenizer
from tests.engine.compiled import sample
from tests.engine.hashed import logits_of
from tests.models.arch_data import load_arch

CASES = json.loads((Path(__file__).parents[1] / "data/sampling/llama_cpp.json").read_text("utf-8"))
HISTORY = [40, 41, 42, 43, 44, 45, 41, 42, 43, 46, 47, 41, 42, 43]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Of the tiny llama, 280 tokens."""
    return Tokenizer.from_metadata(GGUFFile(load_arch("llama", tmp_path_factory.mktemp("arch")).path).metadata)


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["params"]))
def test_a_seed_gives_the_tokens_that_it_gives_in_llama_cpp(case: dict[str, Any], tokenizer: Tokenizer) -> None:
    """For every sampler, alone and in chains of any order; 16 tokens, each among the penalised ones of the next."""
    sampler, tokens = Sampler.for_tokenizer(SamplingParams(**case["params"]), tokenizer), list(HISTORY)
    for step in range(len(case["tokens"])):
        tokens.append(sample(sampler, logits_of(step, tokenizer.n_vocab, case["spread"]), tokens))
    assert tokens[len(HISTORY):] == case["tokens"]
