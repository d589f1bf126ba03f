"""From logits to a token: llama.cpp's samplers in NumPy, one file per concern."""

from ggpy.engine.sampling.sampler import Sampler

__all__ = ["Sampler"]
