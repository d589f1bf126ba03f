"""Qwen 2 and 2.5 (arXiv:2407.10671): Llama's form with biases on q, k and v, with NeoX's pairs in RoPE."""

from ggpy.models import llama
from ggpy.models.hparams import HParams, Keys, read_hparams

build = llama.build


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox")
