"""The CPU backend: weights packed for the kernels, KV pools, and the tape of a forward pass."""

from ggpy.backends.cpu.backend import CpuBackend
from ggpy.kernels.cpu.object_loader import compilers_awake

__all__ = ["CpuBackend", "compilers_awake"]
