"""Where arrays lie, for argument blocks that are filled in each step. Imports no Numba."""

import ctypes
from typing import Any

import numpy.typing as npt


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of a writable, contiguous array that is not empty; quicker than `array.ctypes.data`."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))       # type: ignore[arg-type]
