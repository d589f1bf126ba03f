"""How much a step may read, so that nobody waits long for its end."""

from __future__ import annotations

LEAST_ROWS = 8          # fewer make a row much dearer
FIRST_ROWS = 64         # while nothing is known
MEMORY = 0.5            # how much of what was measured before counts beside the newest step
ALONE = 4               # a step may be so much longer while nobody generates
SEVERAL = 4 / 3         # and so much while answers go on but several prompts wait: the first tokens of all come sooner
LONGEST = 1.1           # of `step_ms`: what steps beside an answer mostly stay within while one prompt waits
ALIKE = 0.2             # steps whose rows differ by no more are compared; in others a row costs more or less anyway
MOST_EXCESS = 0.5       # what no planning helps against
EXCESS_MEMORY = 0.99    # it takes a hundred steps to trust a machine again


class Pace:
    """How many rows of prompts make a step of about `step_ms`, learnt from the steps so far; 0: any number.

    Where steps of about the same size vary much, as on a machine that others use too, they are planned shorter, so that
    the long ones mostly stay within LONGEST, or SEVERAL times that where several prompts wait; a few in a hundred do
    not. Only the length of steps depends on it, never a result.
    """

    def __init__(self, step_ms: float) -> None:
        self.step_s = step_ms / 1000
        self._row_s: float | None = None        # what a row takes; None: nothing is known yet
        self._n_rows = 0                        # of the last step that something was learnt from
        self._excess = 0.0                      # by how much steps take longer than expected, at worst, lately

    def rows(self, most: int, n_generating: int = 0, n_reading: int = 1) -> int:
        """The rows of the next step, LEAST_ROWS to `most`, `n_generating` included; `n_reading` prompts want the rest.
        """
        if not self.step_s:
            return most
        if self._row_s is None:
            return min(most, FIRST_ROWS)
        if n_generating:
            step_s = self.step_s * min(1.0, LONGEST / (1 + self._excess)) * (SEVERAL if n_reading > 1 else 1)
        else:
            step_s = self.step_s * ALONE
        return min(most, max(LEAST_ROWS, int(min(most, step_s / max(self._row_s, 1e-9)))))

    def saw(self, n_rows: int, duration_s: float) -> None:
        """Learn from a step; small ones say little about large ones."""
        if n_rows < LEAST_ROWS:
            return
        row_s = duration_s / n_rows
        if self._row_s is None:
            self._row_s = row_s
        else:
            if abs(n_rows - self._n_rows) <= ALIKE * n_rows:
                self._excess = min(MOST_EXCESS, max(EXCESS_MEMORY * self._excess, row_s / self._row_s - 1))
            self._row_s = MEMORY * self._row_s + (1 - MEMORY) * row_s
        self._n_rows = n_rows
