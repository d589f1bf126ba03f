"""The default path stays as close to llama.cpp as llama.cpp to itself, and closer to float32 than llama.cpp.

llama.cpp's own logits move by whole units between runs that are equally right, so distributions are compared, in nats.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean

import pytest

from ggpy import LLM
from tests.golden.data import PROMPTS, Golden
from tests.golden.measure import N_CTX, Measured, measure_all


@pytest.mark.parametrize("name", PROMPTS)
def test_last_distribution_is_llama_cpps(name: str, golden: Golden, default: Mapping[str, Measured]) -> None:
    """What follows the prompt is as likely as llama.cpp says."""
    assert default[name].last_kl(golden.prompts[name].llama_cpp_last) <= 0.03


@pytest.mark.parametrize("name", PROMPTS)
def test_distributions_along_the_prompt_are_llama_cpps(name: str, golden: Golden,
                                                       default: Mapping[str, Measured]) -> None:
    """At positions spread over the prompt the twenty best tokens are as likely as llama.cpp says."""
    prompt = golden.prompts[name]
    kl = default[name].top_kl(prompt)[prompt.top_positions > 0]
    assert kl.mean() <= 0.02
    assert kl.max() <= 0.15


@pytest.mark.parametrize("name", PROMPTS)
def test_next_tokens_are_as_likely_as_llama_cpp_says(name: str, golden: Golden,
                                                     default: Mapping[str, Measured]) -> None:
    """The mean log-probability of the prompt's own tokens, and the best token nearly everywhere, agree."""
    prompt, measured = golden.prompts[name], default[name]
    deltas = (measured.next_logprob - prompt.llama_cpp_next_logprob)[1:]
    assert abs(deltas.mean()) <= (0.02 if name == "long" else 0.1)
    assert (measured.argmax == prompt.llama_cpp_argmax)[1:].mean() >= (0.9 if name == "long" else 0.75)


@pytest.mark.parametrize("name", PROMPTS)
def test_default_path_is_no_further_from_float32_than_llama_cpp(
        name: str, golden: Golden, default: Mapping[str, Measured], float32: Mapping[str, Measured]) -> None:
    """KL(ours || float32), mean over the prompt's last positions, is at most llama.cpp's own."""
    ratio = ratio_to_llama_cpp(golden, name, default, float32)
    # Q4_1 is multiplied with activations in blocks of 32 by llama.cpp too: the ratio scatters about 1
    assert ratio <= (1.5 if golden.model == "smollm2:135m" else 1.0)


def test_default_path_is_closer_to_float32_than_llama_cpp_over_all_prompts(
        golden: Golden, default: Mapping[str, Measured], float32: Mapping[str, Measured]) -> None:
    """Where one prompt is a matter of luck, the geometric mean of the prompts' ratios is not."""
    assert geometric_mean([ratio_to_llama_cpp(golden, name, default, float32) for name in PROMPTS]) <= 1.0


@pytest.mark.slow
def test_a_q8_0_cache_changes_little(golden: Golden, gguf_path: Path, default: Mapping[str, Measured]) -> None:
    """Keys and values of 8 bits move distributions no more than int8 activations do, large biases of keys or not."""
    with LLM(gguf_path, n_ctx=N_CTX, cache_type_k="q8_0", cache_type_v="q8_0") as llm:
        q8_0 = measure_all(golden, llm)
    for name in PROMPTS:
        assert float(q8_0[name].tail_kl(default[name]).mean()) <= 0.01


def ratio_to_llama_cpp(golden: Golden, name: str, default: Mapping[str, Measured],
                       float32: Mapping[str, Measured]) -> float:
    """Mean divergence from float32 over the tail of a prompt, as a multiple of llama.cpp's."""
    return float(default[name].tail_kl(float32[name]).mean()) / golden.prompts[name].kl_llama_cpp_f32
