"""CPU kernels in explicit SIMD."""
