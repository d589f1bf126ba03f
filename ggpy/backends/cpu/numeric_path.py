"""A name for what the bits of keys and values follow from, beside the model's file, the tokens and the cache types."""

import hashlib
from collections.abc import Iterable

from ggpy.graph.ops import RopeTable
from ggpy.kernels.cpu.cache import PACKAGE, object_path
from ggpy.kernels.cpu.level import current_level

# what says which kernels run in what order, and what they are given
SOURCES = ("graph/lower.py", "backends/cpu/encode.py", "backends/cpu/step.py", "backends/key_offset.py")


def numeric_path(kernels: Iterable[str], rope_tables: Iterable[RopeTable]) -> str:
    """The level whose bits the processor's has, and a hash: of the sources of the modules of `kernels`, and of the
    rotation angles, which may depend on the context. Layouts and threads have no part in it."""
    digest = hashlib.sha256()
    # an object file's name ends in a hash of all sources of its module
    sources = {name.partition(".")[0]: object_path(name).stem.rpartition("-")[2] for name in kernels}
    digest.update(repr(sorted(sources.items())).encode())
    for path in SOURCES:
        digest.update((PACKAGE / path).read_bytes())
    for table in rope_tables:
        digest.update(table.inv_freq.tobytes())
        digest.update(repr((table.magnitude, table.temperature, table.temperature_period)).encode())
    return f"{current_level().bits}-{digest.hexdigest()[:16]}"
