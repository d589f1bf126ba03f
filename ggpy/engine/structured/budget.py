"""What reading the schemas of one request may take: a small schema can say a lot about many members, many times."""

from __future__ import annotations

from ggpy.errors import GrammarError

MAX_WORK = 500_000      # about a second of Python
MAX_DEPTH = 100         # of schemas in each other, references included: readers call themselves for each


class WorkBudget:
    """Counts schemas and members that are looked at, again for each way in which they describe a value."""

    def __init__(self) -> None:
        self._n_left = MAX_WORK

    def spend(self, n: int, path: str) -> None:
        """`n` more are about to be looked at. Raises GrammarError, naming `path`, if they are too many."""
        self._n_left -= n
        if self._n_left < 0:
            raise GrammarError(f"{path[:200]}: too many schemas and members describe the same values, in too many "
                               f"ways; expected {MAX_WORK:,} to look at, one by one, at most")
