"""A tape: the entries of a forward pass, bound to the addresses of their kernels."""

from collections.abc import Mapping, Sequence

import numpy as np

from ggpy.backends.cpu.encode import Entry
from ggpy.graph.plan import Plan
from ggpy.kernels.cpu.team import TAPE_WORDS


class Tape:
    """What the team walks: `whole`, int64 (n_entries, TAPE_WORDS), or its beginning `hidden`, for hidden states."""

    def __init__(self, entries: Sequence[Entry], addresses: Mapping[str, int], plan: Plan) -> None:
        self.entries = entries
        self.whole = np.zeros((len(entries), TAPE_WORDS), np.int64)
        for row, entry in zip(self.whole, entries, strict=True):
            row[:] = addresses[entry.kernel], entry.block.ctypes.data, entry.barrier, entry.n_items
        # tasks stand in order of depth
        maker = next(task.op for task in plan.tasks if task.out is plan.outputs["hidden"])
        self.hidden = self.whole[: max(i for i, entry in enumerate(entries) if entry.op is maker) + 1]
