"""Dask arrays or files -> scores, fitted calibrators and comparisons, on any cluster.

Rows stay where they are: each partition is a task that an executor runs. Scoring adds up accumulators in a tree, and
methods learn from a random subset. Tasks do not change their inputs, so a task that a worker lost can be run again.
Numbers are those of one machine, whatever the partition.
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glayers import comparison
from glayers.arrays import is_dask
from glayers.calibrators import Calibrator
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.many_rows import Pass, sample_rows
from glayers.metrics import StreamingScorecard
from glayers.metrics.events import Event, top
from glayers.predictions import Confidences, Predictions
from glayers.predictions.contents import Contents, Reading
from glayers.predictions.source import Chunk, Make, Merge, Source, UseTask, checked_chunk

try:
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ModuleNotFoundError('dask is missing: pip install "glayers[dask]"', name="dask") from error

__all__ = ["DaskRows", "compare", "fit", "read_files", "rows", "score"]


@dataclass(frozen=True)
class Cluster:
    """An executor: a client's cluster, or where dask runs by default, which is the current client, or threads."""

    client: Any = None

    def fold(self, tasks: Sequence[Any], make: Make, merge: Merge) -> Any:
        """Return what `make` makes of the chunks of each task, merged in a tree, 8 at a time."""
        level = self._begun(lambda _, chunks: make(chunks), tasks)
        while len(level) > 1:
            level = [delayed(_merged)(level[first : first + 8], merge) for first in range(0, len(level), 8)]
        return self.result(level[0])

    def map(self, function: UseTask, tasks: Sequence[Any]) -> list[Any]:
        """Return function(task, its chunks) of each task."""
        return list(self.result(delayed(list)(self._begun(function, tasks))))

    def result(self, task: Delayed) -> Any:
        """Run a task."""
        return task.compute() if self.client is None else self.client.compute(task).result()

    def _begun(self, function: UseTask, tasks: Sequence[Any]) -> list[Delayed]:
        shared = delayed(function, traverse=False)  # sent once
        return [delayed(_of_task)(shared, delayed(task, traverse=False)) for task in tasks]


def _of_task(function: UseTask, task: Any) -> Any:
    return function(task, task.chunks())


def _merged(results: list[Any], merge: Merge) -> Any:
    return reduce(merge, results[1:], copy.deepcopy(results[0]))


def connect(address: str) -> Any:
    """Return a client of the cluster at an address; use it in a `with` statement, which closes it."""
    from distributed import Client

    try:
        return Client(address, timeout=10, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        advice = "give an address such as tcp://host:8786"
        raise GlayersError(f"cannot reach a Dask scheduler at {address} ({error!s:.200}); {advice}") from error


@dataclass(frozen=True)
class DaskRows:
    """Rows on a cluster, one task per partition. Use `rows` or `read_files` to make them."""

    tasks: tuple[Any, ...]


def rows(
    scores: Any,
    labels: Any,
    *,
    inputs: Literal["logits", "probabilities"] = "logits",
    sample_weight: Any = None,
    groups: Any = None,
) -> DaskRows:
    """Return the rows of dask arrays.

    Parameters
    ----------
    scores
        Dask array (n, k) of what `inputs` says; of a data frame, `frame.to_dask_array(lengths=True)`.
    labels, sample_weight, groups
        Arrays (n,) of dask or NumPy.
    inputs
        "logits" or "probabilities".

    Returns
    -------
    DaskRows

    Examples
    --------
    >>> import dask.array as da
    >>> rows(da.random.normal(size=(100, 3), chunks=(40, 3)), np.arange(100) % 3)  # doctest: +ELLIPSIS
    DaskRows(tasks=(...))
    """
    if not is_dask(scores) or getattr(scores, "ndim", 0) != 2:
        raise BadPredictions(f"scores must be a dask array (rows, classes); got {shown(scores)}")
    scores = scores.rechunk({1: -1})
    sizes = scores.chunks[0]
    if any(math.isnan(size) for size in sizes):
        raise BadPredictions("the sizes of the chunks are not known; call .compute_chunk_sizes() first")
    extras = {"labels": labels, "weights": sample_weight, "groups": groups}
    blocks = {name: _blocks(name, values, sizes) for name, values in extras.items() if values is not None}
    blocks[inputs] = scores.to_delayed()[:, 0].tolist()
    tasks = []
    for number, first_row in enumerate(np.cumsum([0, *sizes])[:-1].tolist()):
        if sizes[number] > 0:
            fields = {name: column[number] for name, column in blocks.items()}
            tasks.append(delayed(_partition)(fields, first_row))
    return DaskRows(tuple(tasks))


def _blocks(name: str, values: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return one value per row in blocks of these sizes."""
    import dask.array as da

    array = da.asarray(values)
    if array.shape != (sum(sizes),):
        raise BadPredictions(f"{name} must have shape ({sum(sizes)},), one per row; got {array.shape}")
    blocks: list[Any] = array.rechunk((sizes,)).to_delayed().tolist()
    return blocks


def _partition(fields: dict[str, Any], first_row: int) -> Chunk:
    return replace(checked_chunk(Contents(**fields), needs_labels=True, warn=False), first_row=first_row)


def read_files(*paths: str | Path, entries: int | None = None, **reading: Any) -> DaskRows:
    """Return the rows of files, directories and globs, one task per file; workers must see the same paths.

    Parameters
    ----------
    paths
        Files that `glayers score` reads.
    entries
        The number of scores that a worker holds at a time; the default is 4 million.
    reading
        `part`, `inputs` and `columns`, as in `read_predictions`.

    Returns
    -------
    DaskRows

    Examples
    --------
    >>> read_files("logits/", "more/*.parquet")  # doctest: +SKIP
    """
    source = Source.of([Path(path) for path in paths], Reading(**reading), entries)
    return DaskRows(tuple(source.tasks()))


def score(
    dask_rows: DaskRows,
    calibrator: Calibrator | None = None,
    *,
    event: Event = top,
    client: Any = None,
) -> StreamingScorecard:
    """Score all rows, before calibration or after it.

    Parameters
    ----------
    dask_rows
        From `rows` or `read_files`.
    calibrator
        Apply this one first; None scores rows as they are.
    event
        As in `glayers.metrics.StreamingScorecard`.
    client
        A `distributed.Client`; by default the current one, or threads.

    Returns
    -------
    StreamingScorecard
        Its `result()` is the scorecard; `error_bounds()` says how exact it is.

    Examples
    --------
    >>> import dask.array as da
    >>> logits = da.random.default_rng(0).normal(size=(100, 3), chunks=(40, 3))
    >>> dask_rows = rows(logits, np.arange(100) % 3)
    >>> 0 < score(dask_rows).result()["ks"] < 1
    True
    """
    return Pass({"": calibrator}, {"event": event}).over(dask_rows.tasks, Cluster(client)).sums[""]


def fit(calibrator: Calibrator, dask_rows: DaskRows, *, random_state: int = 0, client: Any = None) -> Calibrator:
    """Fit a calibrator and return it.

    Parameters
    ----------
    calibrator
        Any. It learns from a random subset, of whole groups, as large as `AutoCalibrator` learns from.
    dask_rows
        From `rows` or `read_files`.
    random_state
        Seed of the subset.
    client
        As in `score`.

    Returns
    -------
    Calibrator
        The same calibrator, fitted.

    Examples
    --------
    >>> import dask.array as da
    >>> logits = da.random.default_rng(0).normal(size=(100, 3), chunks=(40, 3))
    >>> dask_rows = rows(logits, np.arange(100) % 3)
    >>> from glayers import TemperatureScaling
    >>> fit(TemperatureScaling(), dask_rows).diagnostics_.rows
    100
    """
    return calibrator.fit_predictions(sample_rows(dask_rows.tasks, Cluster(client), random_state).result())


def compare(
    calibration: DaskRows | Predictions | Confidences,
    test: DaskRows,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    *,
    inputs: str = "logits",
    random_state: int = 0,
    client: Any = None,
) -> comparison.Comparison:
    """Fit methods here on a random subset of the calibration rows, and score them on all test rows.

    Parameters
    ----------
    calibration, test
        From `rows` or `read_files`. Calibration rows in memory are used as they are.
    methods, inputs, random_state
        As in `glayers.compare`.
    client
        As in `score`.

    Returns
    -------
    Comparison
        Its `test` is a random subset of the test rows, for tests and the report; the scores are those of all rows.

    Examples
    --------
    >>> import dask.array as da
    >>> logits = da.random.default_rng(0).normal(size=(100, 3), chunks=(40, 3))
    >>> labels = np.arange(100) % 3
    >>> list(compare(rows(logits[:50], labels[:50]), rows(logits, labels), ["temperature"]).scorecards)
    ['uncalibrated', 'temperature']
    """
    cluster = Cluster(client)
    learned: Any = calibration
    if isinstance(calibration, DaskRows):
        learned = sample_rows(calibration.tasks, cluster, random_state).result()
    tested = sample_rows(test.tasks, cluster, random_state).result()
    found = comparison.compare(learned, tested, methods, inputs=inputs, random_state=random_state, progress=False)
    sums = Pass({comparison.UNCALIBRATED: None, **found.calibrators}).over(test.tasks, cluster).sums
    return replace(found, scorecards={name: card.result() for name, card in sums.items()})
