"""Records of fits, one a seed -> curves with bars for seeds: errors against size, and through training.

A record is a mapping, such as a line of a CSV file read with numbers as numbers.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats
from glayers.errors import GlayersError


@dataclass(frozen=True, eq=False)
class SeedCurve:
    """A name, and at each x the mean over seeds, the lowest and the highest."""

    name: tuple[Hashable, ...]
    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def seed_curves(
    records: Iterable[Mapping[str, object]], metric: str, *, x: str, by: Sequence[str]
) -> tuple[SeedCurve, ...]:
    """Return one curve of the metric against x for each combination of what the records hold under `by`.

    >>> runs = [{"depth": 2, "weights": 96, "seed": seed, "ks": ks} for seed, ks in enumerate([0.01, 0.02, 0.03])]
    >>> curve, = seed_curves(runs, "ks", x="weights", by=["depth"])
    >>> curve.name, curve.x.tolist(), curve.mean.round(3).tolist(), curve.high.tolist()
    ((2,), [96.0], [0.02], [0.03])
    """
    found: dict[tuple[Hashable, ...], dict[float, list[float]]] = {}
    for place, record in enumerate(records):
        missing = [name for name in (x, metric, *by) if name not in record]
        if missing:
            raise GlayersError(f"record {place} has no {', '.join(missing)}; it has {', '.join(map(str, record))}")
        name = tuple(_hashable(record[part]) for part in by)
        found.setdefault(name, {}).setdefault(_number(record, x, place), []).append(_number(record, metric, place))
    if not found:
        raise GlayersError("records are empty; give one mapping for each fit")
    return tuple(_curve(name, values) for name, values in found.items())


def _curve(name: tuple[Hashable, ...], values: Mapping[float, list[float]]) -> SeedCurve:
    places = sorted(values)
    mean, low, high = (np.array([how(values[place]) for place in places]) for how in (np.mean, np.min, np.max))
    return SeedCurve(name, np.array(places), mean, low, high)


def _number(record: Mapping[str, object], name: str, place: int) -> float:
    value = record[name]
    if not isinstance(value, int | float | np.number):
        raise GlayersError(f"record {place}: {name} must be a number; got {value!r}")
    return float(value)


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else str(value)
