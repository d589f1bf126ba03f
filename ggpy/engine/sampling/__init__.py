"""From logits to a token: a request's samplers as a tape of compiled kernels."""

from ggpy.engine.sampling.memory import SamplingMemory
from ggpy.engine.sampling.sampler import Sampler

__all__ = ["Sampler", "SamplingMemory"]
