"""The metrics of the scorecard, and their evaluation over one block of row weights or over many.

To add a metric, write its evaluation and its `Metric` record in the module of its idea, and list it in that module's
`METRICS`. A new module also needs its line here. Scorecard, intervals, differences, tests, tables, command line and
report then show it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from glayers.arrays import Floats
from glayers.checks import items_of
from glayers.errors import BadPredictions, shown
from glayers.metrics import binned, ks, scores, selective, smooth
from glayers.metrics.events import Rows, Scored, class_events, rank_events
from glayers.metrics.metric import Block, Metric, mean

__all__ = ["METRICS"]

_ALL = (*scores.METRICS, *ks.METRICS, *binned.METRICS, *smooth.METRICS, *selective.METRICS)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
_ENTRIES = 2_000_000  # probabilities of classes sorted at once: 56 MB


def chosen_metrics(rows: Rows | Scored, names: Iterable[str] | None = None) -> list[Metric]:
    """Return the named metrics, or all that these rows allow: `Confidences` allow those of an event."""
    possible = dict(METRICS)
    if isinstance(rows, Scored):
        possible = {name: metric for name, metric in METRICS.items() if metric.about == "event"}
    if names is None:
        return list(possible.values())
    listed = items_of(names)
    known = all(isinstance(name, str) and name in METRICS for name in listed or ())
    if not listed or not known:
        raise BadPredictions(f"metrics must be a list of some of {', '.join(METRICS)}; got {shown(names)}")
    impossible = [name for name in listed if name not in possible]
    if impossible:
        raise BadPredictions(
            f"{', '.join(impossible)}: needs the probabilities of all classes; choose from {', '.join(possible)}"
        )
    return [possible[name] for name in listed]


def evaluate_once(rows: Rows | Scored, metrics: Iterable[Metric]) -> dict[str, float]:
    """Return each metric for the rows' own weights."""
    block = Block.of(rows)
    return {metric.name: float(_values(metric, rows, block)[0]) for metric in metrics}


def evaluate(
    rows: Rows | Scored,
    metrics: Sequence[Metric],
    blocks: Callable[[], Iterable[Block]],
    advance: Callable[[], None],
) -> dict[str, Floats]:
    """Return each metric for every column of the blocks, calling `advance` after each block of each pass.

    `blocks` is called for each of the `class_ranges` and must yield the same weights again.
    """
    found: dict[str, Floats] = {}
    jobs = [(metric, rows) for metric in metrics if metric.about != "classes"]
    for classes in class_ranges(rows, metrics):
        part = replace(rows, classes=classes) if isinstance(rows, Rows) else rows
        jobs += [(metric, part) for metric in metrics if metric.about == "classes"]
        columns: dict[str, list[Floats]] = {metric.name: [] for metric, _ in jobs}
        for block in blocks():
            for metric, its_rows in jobs:
                columns[metric.name].append(_values(metric, its_rows, block))
            advance()
            del block  # with what it keeps, before the next is made
        for name, values in columns.items():
            found[name] = found.get(name, 0.0) + np.concatenate(values)
        jobs = []
    return found


def class_ranges(rows: Rows | Scored, metrics: Iterable[Metric]) -> list[range]:
    """Return the classes of each pass over the blocks: sorting all of them at once may not fit into memory."""
    if isinstance(rows, Scored) or all(metric.about != "classes" for metric in metrics):
        return [range(0)]
    at_once = max(1, _ENTRIES // len(rows.labels))
    return [range(first, min(first + at_once, rows.n_classes)) for first in range(0, rows.n_classes, at_once)]


def _values(metric: Metric, rows: Rows | Scored, block: Block) -> Floats:
    """Return a metric for each column; of some of the classes, their part of the mean over all classes."""
    if isinstance(rows, Scored):
        return metric.evaluate(rows, block)
    if metric.about == "event":
        return metric.evaluate(rows.top, block)
    if metric.about == "rows":
        return np.minimum(mean(rows.cached(metric.evaluate), block), metric.highest)
    if metric.about == "ranks":
        events = rows.cached(rank_events, min(metric.at_most, rows.n_classes))
        return np.mean([metric.evaluate(event, block) for event in events], axis=0)
    if metric.over_classes is not None:
        return metric.over_classes(rows, block)
    errors = [metric.evaluate(event, block) for event in rows.cached(class_events)]
    return np.sum(errors, axis=0) / rows.n_classes
