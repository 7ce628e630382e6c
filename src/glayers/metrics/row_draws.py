"""Rows that arrive in chunks -> a random subset of them, which depends on a seed and on each row's place alone.

So every machine that sees a row decides the same for it, in any order. Rows of a group are drawn together.
"""

import hashlib
from typing import Any, Self

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadPredictions
from glayers.predictions.predictions import Confidences, Predictions

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, of Steele, Lea and Flood, OOPSLA 2014


class RowSample:
    """A random subset of rows that arrive in chunks: those with the smallest keys, whole groups where there are any.

    Parameters
    ----------
    most
        The number of rows at most.
    random_state
        The seed: another seed gives other rows.

    Examples
    --------
    >>> rows = Predictions(np.arange(60.0).reshape(20, 3) + 5, np.arange(20) % 3)
    >>> first = RowSample(5).update(rows.take(slice(0, 8)), row_places(0, 8))
    >>> second = RowSample(5).update(rows.take(slice(8, 20)), row_places(8, 12))
    >>> len(first.merge(second).result())
    5
    """

    def __init__(self, most: int, random_state: int = 0) -> None:
        self.most = most
        self.random_state = random_state
        self.n_seen = 0
        self._parts: list[Any] = []  # the rows with these keys and places
        self._keys = np.zeros(0, np.uint64)
        self._places = np.zeros(0, np.uint64)
        self._below = np.uint64(2**64 - 1)  # only rows with smaller keys may still be drawn

    def update(self, rows: Predictions | Confidences, places: Array) -> Self:
        """Add rows with their places; the rows of a group are drawn together."""
        self.n_seen += len(rows)
        keys = places
        if rows.groups is not None:
            keys = group_keys(rows.groups)
        with np.errstate(over="ignore"):
            keys = _hash_bits(_hash_bits(keys + _GOLDEN) + np.uint64(self.random_state))
        kept = np.flatnonzero(keys < self._below)  # none of most chunks of a long file
        if len(kept):
            self._add([rows.take(kept)], keys[kept], places[kept])
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another sample with the same settings."""
        self.n_seen += other.n_seen
        self._below = min(self._below, other._below)
        self._add(other._parts, other._keys, other._places)
        return self

    def result(self) -> Predictions | Confidences:
        """Return the rows that were drawn, in the order of their places."""
        if not self._parts:
            raise BadPredictions("there are no rows to draw from")
        self._cut()
        found: Predictions | Confidences = self._parts[0].take(np.argsort(self._places, kind="stable"))
        return found

    def _add(self, parts: list[Any], keys: Array, places: Array) -> None:
        self._parts = self._parts + parts  # a new list: the other sample keeps its own
        self._keys = np.concatenate([self._keys, keys])
        self._places = np.concatenate([self._places, places])
        if len(self._keys) > 1.5 * self.most:  # seldom, as it copies all rows
            self._cut()

    def _cut(self) -> None:
        """Keep the smallest keys: the longest run of whole groups that fits, but at least one group."""
        ordered = np.sort(self._keys[self._keys < self._below])
        if len(ordered) > self.most:
            fits = np.searchsorted(ordered, ordered[self.most])
            last = fits or np.searchsorted(ordered, ordered[0], side="right")
            self._below = np.append(ordered, self._below)[last]
        kept = np.flatnonzero(self._keys < self._below)
        self._parts = [_concatenated(self._parts).take(kept)]
        self._keys = self._keys[kept]
        self._places = self._places[kept]


def row_places(first: int, number: int, file: int = 0) -> Array:
    """Return a different number for each of consecutive rows of a file, in ascending order."""
    return np.arange(first, first + number, dtype=np.uint64) + (np.uint64(file) << np.uint64(40))


def group_keys(groups: Array) -> Array:
    """Return the key of each row's group, the same on every machine."""
    if groups.dtype == object:
        groups = groups.astype(str)
    names, which = np.unique(groups, return_inverse=True)
    keys = []
    for name in names.tolist():
        if isinstance(name, float) and name.is_integer():
            name = int(name)  # 1.0 is 1
        digest = hashlib.blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "little"))
    return np.array(keys, np.uint64)[which]


def _hash_bits(keys: Array) -> Array:
    """Return well mixed bits of each key: the output function of SplitMix64."""
    with np.errstate(over="ignore"):
        x = keys.astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _concatenated(parts: list[Any]) -> Any:
    """Return the rows of several `Predictions` or `Confidences` as one."""
    fields = [name for name, value in vars(parts[0]).items() if isinstance(value, np.ndarray)]
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in fields}
    return type(parts[0])._trusted(**(vars(parts[0]) | whole))
