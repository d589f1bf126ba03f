"""The CPU backend: weights packed for the kernels, KV pools, and the tape of a forward pass."""

from ggpy.backends.cpu.backend import CpuBackend
from ggpy.kernels.cpu.library import workers_awake

__all__ = ["CpuBackend", "workers_awake"]
