"""How long a step takes, by its number of rows."""

from __future__ import annotations

from bisect import bisect_left, insort

PRIOR_PER_ROW = 0.15    # of the time of one row: what each further row takes until it is known
DRIFT = 0.1             # how fast all times follow a change that every step shows, such as that of longer contexts
LEARNING = 0.05         # how fast the time of one number of rows follows, once it is known well
MOST = 2.0              # one step may make a time seem at most so many times as long, or as short


class StepTimes:
    """Learns the seconds of steps by their rows.

    Times are kept as multiples of a scale, so that steps of any number of rows show how all of them change.
    """

    def __init__(self) -> None:
        self._scale_s: float | None = None
        self._relative: dict[int, float] = {}
        self._n_seen: dict[int, int] = {}
        self._known: list[int] = []             # numbers of rows that were seen, sorted

    @property
    def is_known(self) -> bool:
        """Whether there was a step at all."""
        return self._scale_s is not None

    def saw(self, n_rows: int, step_s: float) -> None:
        """Learn from a step."""
        if step_s <= 0:
            return
        if self._scale_s is None:
            self._scale_s = step_s / prior(n_rows)
        if n_rows not in self._relative:
            insort(self._known, n_rows)
            self._relative[n_rows] = step_s / self._scale_s
            self._n_seen[n_rows] = 1
            return
        self._n_seen[n_rows] += 1
        ratio = self._clamped(n_rows, step_s)
        self._scale_s *= ratio**DRIFT
        self._relative[n_rows] *= self._clamped(n_rows, step_s) ** max(LEARNING, 1 / self._n_seen[n_rows])

    def seconds(self, n_rows: int) -> float:
        """Of a step of `n_rows` rows, between and beyond what was seen as far as that tells; nothing seen: 1 a row."""
        return (self._scale_s or 1.0) * self._of(n_rows)

    def _clamped(self, n_rows: int, step_s: float) -> float:
        return min(MOST, max(1 / MOST, step_s / self.seconds(n_rows)))

    def _of(self, n_rows: int) -> float:
        if n_rows in self._relative:
            return self._relative[n_rows]
        known = self._known
        place = bisect_left(known, n_rows)
        if not known:
            return prior(n_rows)
        if place == 0 or place == len(known):
            nearest = known[min(place, len(known) - 1)]
            return self._relative[nearest] * prior(n_rows) / prior(nearest)
        below, above = known[place - 1], known[place]
        part = (n_rows - below) / (above - below)
        return (1 - part) * self._relative[below] + part * self._relative[above]


def prior(n_rows: int) -> float:
    """The time of a step of `n_rows` rows in that of one row, before anything is known."""
    return 1 + PRIOR_PER_ROW * (n_rows - 1)
