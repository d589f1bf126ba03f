"""Large blocks of anonymous memory, on huge pages where the system has them."""

import mmap
import sys

import numpy as np
import numpy.typing as npt

from ggpy.errors import OutOfMemoryError

HUGE_PAGE = 2 << 20
# shared memory, which is Python's default, gets no huge pages on most systems; Windows knows no such flags
PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if sys.platform != "win32" else {}
PREFETCH_BYTES = 8192       # kernels prefetch this far past what they read


class Arena:
    """`size_bytes` of zeros, starting on a huge page; pages exist once they are touched.

    4 KB pages cost decode about a quarter of the memory bandwidth, so huge pages are asked for. `purpose` says in the
    error what the memory is for. Raises OutOfMemoryError if the system does not give it.
    """

    def __init__(self, size_bytes: int, purpose: str) -> None:
        self.size_bytes = size_bytes
        try:
            self._map = mmap.mmap(-1, size_bytes + PREFETCH_BYTES + HUGE_PAGE, **PRIVATE)
        except (OSError, OverflowError, ValueError) as error:
            raise OutOfMemoryError(
                f"{purpose}: {size_bytes / 1e9:,.1f} GB of memory are needed and the system does not give them; take a "
                "shorter context, smaller steps, fewer threads or a smaller model") from error
        if hasattr(mmap, "MADV_HUGEPAGE") and size_bytes >= HUGE_PAGE:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self._map, np.uint8)
        start = -whole.ctypes.data % HUGE_PAGE
        self.bytes: npt.NDArray[np.uint8] = whole[start: start + size_bytes]
        self.address = int(whole.ctypes.data) + start

    def floats(self, offset: int, n_rows: int, width: int) -> npt.NDArray[np.float32]:
        """A float32 view (n_rows, width) of the arena at a byte offset."""
        return self.bytes[offset: offset + n_rows * width * 4].view(np.float32).reshape(n_rows, width)


def aligned(n_bytes: int, to: int = 64) -> int:
    """`n_bytes` rounded up to a multiple of `to`."""
    return -(-n_bytes // to) * to
