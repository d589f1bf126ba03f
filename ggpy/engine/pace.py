"""How much a step may read, so that nobody waits long for its end."""

from __future__ import annotations

LEAST_ROWS = 8          # fewer make a row much dearer
ROW_MULTIPLE = 4        # kernels take rows in groups
FIRST_ROWS = 64         # while nothing is known
MEMORY = 0.5            # how much of what was measured before counts beside the newest step
ALONE = 4               # a step may be so much longer while nobody generates


class Pace:
    """How many rows of prompts make a step of about `step_ms`, learnt from the steps so far; 0: any number.

    Only the length of steps depends on it, never a result.
    """

    def __init__(self, step_ms: float) -> None:
        self.step_s = step_ms / 1000
        self._row_s: float | None = None        # what a row takes; None: nothing is known yet

    def rows(self, most: int, n_generating: int = 0) -> int:
        """The rows of the next step, LEAST_ROWS to `most`, `n_generating` included."""
        if not self.step_s:
            return most
        if self._row_s is None:
            return min(most, FIRST_ROWS)
        step_s = self.step_s if n_generating else ALONE * self.step_s
        n = int(min(most, step_s / max(self._row_s, 1e-9)))
        return n if n == most else min(most, max(LEAST_ROWS, n // ROW_MULTIPLE * ROW_MULTIPLE))

    def saw(self, n_rows: int, duration_s: float) -> None:
        """Learn from a step; small ones say little about large ones."""
        if n_rows < LEAST_ROWS:
            return
        row_s = duration_s / n_rows
        self._row_s = row_s if self._row_s is None else MEMORY * self._row_s + (1 - MEMORY) * row_s
