"""Rope scalings: the tables, from hyperparameters small enough to check by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ggpy.gguf import GGUFFile
from ggpy.models.hparams import RopeHParams
from ggpy.models.rope import rope_table, unscaled_table
from ggpy.models.weights import Weights
from tests.models.arch_data import ArchModel

PLAIN = RopeHParams(pairing="neox", n_rot=4, freq_base=10_000.0, freq_base_window=100.0, scaling="linear", factor=1.0,
                    n_ctx_original=64, attn_factor=1.0, beta_fast=32.0, beta_slow=1.0, log_multiplier=0.0)


@pytest.fixture
def plain(arch_model: Callable[[str], ArchModel]) -> Weights:
    """Weights without frequency factors."""
    return Weights(GGUFFile(arch_model("llama").path))


def test_frequencies_fall_from_one_by_the_base(plain: Weights) -> None:
    """Pair i of n_rot dims turns base^(-2i / n_rot) per position."""
    table = rope_table(PLAIN, plain, 64)
    assert table.inv_freq == pytest.approx([1, 0.01])
    assert (table.magnitude, table.temperature) == (1, 0)


def test_linear_scaling_divides_all_frequencies(plain: Weights) -> None:
    """A factor of 4 makes positions four times closer; scaling "none" ignores the factor."""
    assert rope_table(replace(PLAIN, factor=4.0), plain, 64).inv_freq == pytest.approx([0.25, 0.0025])
    assert rope_table(replace(PLAIN, factor=4.0, scaling="none"), plain, 64).inv_freq == pytest.approx([1, 0.01])


def test_sliding_layers_have_their_own_base_and_no_scaling() -> None:
    """Base 100 over 4 dims."""
    assert unscaled_table(replace(PLAIN, factor=4.0)).inv_freq == pytest.approx([1, 0.1])


def test_yarn_keeps_fast_dims_and_interpolates_slow_ones(plain: Weights) -> None:
    """Of 8 pairs over 4096 tokens the first turn more than 32 times and stay, the last less than once and slow down."""
    hp = replace(PLAIN, n_rot=16, scaling="yarn", factor=4.0, n_ctx_original=4096)
    base = 10_000.0 ** (-np.arange(8) / 8)
    low, high = (16 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(10_000)) for turns in (32, 1))
    assert (math.floor(low), math.ceil(high)) == (2, 6)
    slow = np.array([0, 0, 0, 0.25, 0.5, 0.75, 1, 1])
    assert rope_table(hp, plain, 4096).inv_freq == pytest.approx(base * (1 - slow) + base / 4 * slow)


def test_yarn_magnitude_grows_with_the_factor(plain: Weights) -> None:
    """0.1 ln(4) + 1, divided by the same with the model's multiplier where it has one, times attn_factor."""
    hp = replace(PLAIN, scaling="yarn", factor=4.0)
    assert rope_table(hp, plain, 64).magnitude == pytest.approx(1.138629)
    assert rope_table(replace(hp, log_multiplier=1.0), plain, 64).magnitude == pytest.approx(1)
    assert rope_table(replace(hp, log_multiplier=0.5, attn_factor=2.0), plain, 64).magnitude == pytest.approx(
        2 * 1.138629 / 1.0693147)


def test_llama3_factors_divide_one_by_one(arch_model: Callable[[str], ArchModel]) -> None:
    """rope_freqs.weight of the file is 1, 1, 1, 1.3, 2.2, 4.7, 8, 8, whatever the context."""
    weights = Weights(GGUFFile(arch_model("llama_rope_llama3").path))
    table = rope_table(replace(PLAIN, n_rot=16), weights, 64)
    assert 10_000.0 ** (-np.arange(8) / 8) / table.inv_freq == pytest.approx([1, 1, 1, 1.3, 2.2, 4.7, 8, 8])


@pytest.mark.parametrize(("n_ctx", "factors"), [(64, [1, 1, 1.02, 1.05, 1.1, 1.2, 1.3, 1.4]),
                                                (65, [1, 1.1, 1.5, 2.5, 4, 8, 16, 24])])
def test_longrope_chooses_by_context(n_ctx: int, factors: list[float],
                                     arch_model: Callable[[str], ArchModel]) -> None:
    """The short factors serve contexts up to the original one of 64, the long ones all others."""
    weights = Weights(GGUFFile(arch_model("phi3_longrope").path))
    table = rope_table(replace(PLAIN, n_rot=16, attn_factor=1.19), weights, n_ctx)
    assert 10_000.0 ** (-np.arange(8) / 8) / table.inv_freq == pytest.approx(factors)
    assert table.magnitude == 1.19
