"""The tokens that may still be chosen, and their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Ids = NDArray[np.intp]

GROUP_SIZE = 64         # logits in each group of top_positions
FIRST_HEAD = 256        # candidates that are put in order when it is not known how many are needed
SLICES_PER_UNIT, N_SLICES = np.float32(32), 2048     # of logits below the best, where it takes more than that


class Reach(NamedTuple):
    """Candidates up to where a running sum reaches a target, and some more."""

    before: Ids             # positions, in no order, of those before the head
    head: Ids               # positions, in order
    running: Float64        # the running sums of the head, what is before it included

    def n_in_head(self, target: float) -> int:
        """How many of the head it takes to reach `target`, or as much as there is."""
        return int(np.searchsorted(self.running, min(target, self.running[-1]))) + 1


class Candidates:
    """Tokens with their logits, in the order in which a draw goes through them.

    At first these are all tokens by id. Samplers that need the most probable ones sort them, by falling logit, equal
    ones as they stood. Since most need only the first few, `sort` merely promises an order: `_keys` are the logits to
    sort by, and None once the candidates stand in it. So `logits` and `ids` may be out of order until `settle`.
    """

    def __init__(self, logits: Float32) -> None:
        self.logits = logits                    # (n,); replaced, never written to
        self._ids: Ids | None = None            # (n,); None: 0 to n - 1
        self.is_sorted = False
        self._keys: Float32 | None = None

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def is_settled(self) -> bool:
        """Whether `logits` and `ids` stand in order."""
        return self._keys is None

    @property
    def ids(self) -> Ids:
        """Token ids (n,)."""
        return np.arange(len(self)) if self._ids is None else self._ids

    def id_at(self, position: int) -> int:
        return int(position if self._ids is None else self._ids[position])

    def find(self, tokens: Ids) -> tuple[Ids, Ids]:
        """Positions of those of `tokens` (without repetitions) that are candidates, and their places in `tokens`."""
        if self._ids is None:
            places = np.flatnonzero(tokens < len(self))
            return tokens[places], places
        _, positions, places = np.intersect1d(self._ids, tokens, assume_unique=True, return_indices=True)
        return positions, places

    def sort(self) -> None:
        """From now on candidates stand by falling logit."""
        if not self.is_sorted:
            self.is_sorted = True
            self._keys = self.logits

    def unsort(self) -> None:
        """The logits are about to change one by one: the order stays as it is and is one by logit no more."""
        self.settle()
        self.is_sorted = False

    def settle(self) -> None:
        """Put the candidates into their order."""
        if self._keys is not None:
            self.take(self.first(len(self)))

    def take(self, positions: Ids | slice) -> None:
        """Keep the candidates at `positions`, which are in their order."""
        self.filter(positions)
        self._keys = None

    def filter(self, positions: Ids | slice) -> None:
        """Keep the candidates at `positions`, rising, whatever their order."""
        if self._ids is None and not isinstance(positions, slice):
            self._ids = positions
        else:
            self._ids = self.ids[positions]
        self.logits = self.logits[positions]
        if self._keys is not None:
            self._keys = self._keys[positions]

    def keep_first(self, n: int) -> None:
        """Keep the first `n` in order."""
        if n < len(self) or self._keys is not None:
            self.take(self.first(n))

    def drop_first(self, n: int) -> None:
        """Take the first `n` in order away."""
        stays = np.ones(len(self), bool)
        stays[self.first(n)] = False
        self.filter(np.flatnonzero(stays))

    def keep_best(self) -> None:
        """Keep the one with the largest logit, of equal ones the first."""
        self.take(np.array([np.argmax(self.logits)]) if self._keys is None else self.first(1))

    def reach(self, weights: Float32, target: float) -> Reach:
        """Where, in order, the running sum of `weights` (n,) reaches `target`; they fall as the logits do."""
        head = self.first(FIRST_HEAD if self._keys is not None else len(self))
        running = np.cumsum(weights[head], dtype=np.float64)
        if running[-1] >= target or len(head) == len(self):
            return Reach(head[:0], head, running)
        assert self._keys is not None
        # not among the first few: find out which slice of the logits it is in, and put only that in order
        below = np.minimum(self._keys.max() - self._keys, (N_SLICES - 1) / SLICES_PER_UNIT)
        slices = (below * SLICES_PER_UNIT).astype(np.intp)
        sums = np.bincount(slices, weights, minlength=N_SLICES)
        after = np.cumsum(sums)
        i = min(int(np.searchsorted(after, target)), int(np.flatnonzero(sums)[-1]))
        head = np.flatnonzero(slices == i)
        keys = self._keys[head]
        if keys.min() < keys.max():
            head = descending(self._keys, head)
        running = (after[i - 1] if i else 0) + np.cumsum(weights[head], dtype=np.float64)
        return Reach(np.flatnonzero(slices < i), head, running)

    def weights(self) -> Float32:
        """Probabilities (n,) but for a common factor: 1 for the best."""
        weights: Float32 = self.logits - self.logits.max()
        np.exp(weights, out=weights)
        return weights

    def probabilities(self) -> Float32:
        """float32 (n,), adding up to 1."""
        weights = self.weights()
        weights /= np.float32(weights.sum(dtype=np.float64))
        return weights

    def first(self, n: int) -> Ids:
        """Positions of the first `n` in order."""
        return np.arange(min(n, len(self))) if self._keys is None else top_positions(self._keys, n)


def top_positions(keys: Float32, n: int) -> Ids:
    """Positions of the `n` largest keys, the largest first, equal ones as they stand; all for a larger `n`.

    n groups with a maximum of at least t hold n keys of at least t, so the n-th largest maximum of many small groups
    is a bound that few keys reach; finding it costs a fraction of a partition of all keys.
    """
    size = len(keys)
    if n >= size:
        return descending(keys, np.arange(size))
    maxima = keys[: size - size % GROUP_SIZE].reshape(GROUP_SIZE, -1).max(axis=0) if size >= GROUP_SIZE * n else keys
    bound = np.partition(maxima, len(maxima) - n)[len(maxima) - n]
    found = np.flatnonzero(keys >= bound)
    above = descending(keys, found[keys[found] > bound])[:n]
    if len(above) == n:
        return above
    return np.concatenate([above, found[keys[found] == bound][: n - len(above)]])       # `bound` is the n-th largest


def descending(keys: Float32, positions: Ids) -> Ids:
    """`positions` (rising) by falling key, equal ones as they stand. Keys are no NaN.

    Key and position are sorted as one integer, twice as fast as a stable sort: the bits of a float32, all but
    the sign inverted where it is negative, are an integer that rises with it. Adding 0 makes -0 a 0.
    """
    bits = (keys[positions] + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    packed = (~rising).astype(np.int64) << 32 | positions
    packed.sort()
    return packed & 0xFFFFFFFF
