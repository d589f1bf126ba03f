"""The CPU backend: weights packed for the kernels, KV pools, and the tape of a forward pass."""

from ggpy.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
