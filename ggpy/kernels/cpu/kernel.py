"""What a kernel is: a Python function `(args, step, ith, nth)` of four int64, compiled when a model needs it.

`args` is the address of the kernel's own argument block, `step` that of the step descriptor (`step.py`), and the
calling thread is number `ith` of `nth`. A kernel is named by where it stands: "q4_k.linear" is `linear` in `q4_k.py`.
It reads and writes memory by address, raises nothing and calls no Python.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

WORD = 8        # bytes of a field

# for the helper functions of kernels; they are inlined where they are called
device = njit(nogil=True, error_model="numpy", boundscheck=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def kernel(function: Callable[[int, int, int, int], None]) -> Callable[[int, int, int, int], None]:
    """Marks a function that `compile.py` turns into machine code under its module's and its own name."""
    function.is_kernel = True                                                           # type: ignore[attr-defined]
    return function


def fields(names: str) -> Any:
    """Byte offsets of the int64 fields of an argument block: `ARGS = fields("x out n")`, then `load_i64(args + ARGS.n)`."""
    words = names.split()
    return namedtuple("Fields", words)(*range(0, WORD * len(words), WORD))             # type: ignore[misc]  # noqa: PYI024


def argument_block(layout: Any, **values: int) -> npt.NDArray[np.int64]:
    """The int64 array that `layout` describes; every field must be given, and no other."""
    if set(values) != set(layout._fields):
        raise TypeError(f"fields {sorted(set(values) ^ set(layout._fields))} are missing or unknown")
    return np.array([values[name] for name in layout._fields], dtype=np.int64)
