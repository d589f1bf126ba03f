"""Mistral 3 and Ministral 3: Llama's form, with YaRN's own constants in the file and query temperature."""

from dataclasses import replace

from ggpy.errors import UnsupportedModelError
from ggpy.models import llama
from ggpy.models.hparams import HParams, Keys

build = llama.build


def hparams(keys: Keys) -> HParams:
    hp = llama.hparams(keys)
    rope = replace(
        hp.rope,
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", hp.rope.beta_fast, low=1e-3, high=1e6),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", hp.rope.beta_slow, low=1e-3, high=1e6),
        log_multiplier=keys.number("rope.scaling.yarn_log_multiplier", 0.0, low=0, high=1e3))
    temperature = keys.number("attention.temperature_scale", 0.0, low=0, high=1e3)
    if temperature and rope.n_rot != hp.head_dim_k:
        # the temperature rides on the rotation, so every dim must turn
        raise UnsupportedModelError(f"{keys.arch}.rope.dimension_count is {rope.n_rot}; expected {hp.head_dim_k}, "
                                    "the whole head, in a model with attention.temperature_scale")
    return replace(hp, rope=rope, temperature_scale=temperature)
