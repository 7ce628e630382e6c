"""Dask arrays, data frames or files -> scores, fitted calibrators and comparisons, on any cluster.

Rows stay where they are: each partition is a task that an executor runs. Scoring adds up accumulators in a tree,
temperature scaling adds up its loss and derivatives, and other methods learn from a random subset. Tasks do not change
their inputs, so a task that a worker lost can be run again. Numbers are those of one machine, whatever the partition.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glayers.arrays import Array, is_dask
from glayers.calibrators import Calibrator, TemperatureScaling
from glayers.comparison import UNCALIBRATED, Comparison, calibrators_of
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.fitting.temperature import PartDerivatives, add_up, refine_inverse_temperature, shrunk
from glayers.many_rows import Pass, sample_rows
from glayers.maps import Chain, Scale
from glayers.metrics import Event, StreamingScorecard, top
from glayers.predictions import Confidences, Predictions
from glayers.predictions.contents import Reading
from glayers.predictions.predictions import two_classes
from glayers.predictions.source import Chunk, Make, Merge, Source, UseTask
from glayers.predictions.tables import Columns, contents_of_table

try:
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ModuleNotFoundError('dask is missing: pip install "glayers[dask]"', name="dask") from error

__all__ = ["DaskRows", "compare", "fit", "read_files", "rows", "score"]

_AT_ONCE = 8  # results that one task merges


@dataclass(frozen=True)
class Cluster:
    """An executor: a client's cluster, or where dask runs by default, which is the current client, or threads."""

    client: Any = None

    def fold(self, tasks: Sequence[Any], make: Make, merge: Merge) -> Any:
        """Return what `make` makes of the chunks of each task, merged in a tree."""
        level = self._begun(lambda _, chunks: make(chunks), tasks)
        while len(level) > 1:
            groups = [level[first : first + _AT_ONCE] for first in range(0, len(level), _AT_ONCE)]
            level = [delayed(_merged)(results, merge) for results in groups]
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
        reason = f"{type(error).__name__}: {error}"
        raise GlayersError(
            f"cannot reach a Dask scheduler at {address} ({reason:.200}); give an address such as tcp://host:8786"
        ) from error


@dataclass(frozen=True)
class DaskRows:
    """Rows on a cluster, one task per partition. Use `rows` or `read_files` to make them."""

    tasks: tuple[Any, ...]


@dataclass(frozen=True)
class Partition:
    """The rows of one partition, a task that has been read."""

    rows: tuple[Chunk, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        """Return the rows."""
        return iter(self.rows)


def rows(
    scores: Any,
    labels: Any = None,
    *,
    inputs: Literal["logits", "probabilities"] = "logits",
    sample_weight: Any = None,
    groups: Any = None,
) -> DaskRows:
    """Return the rows of dask arrays, or of a dask data frame.

    Parameters
    ----------
    scores
        Dask array (n, k) of what `inputs` says, or a dask data frame with the columns of a table: logit_0, logit_1, ...
        or probability_0, ..., and label; weight and group if there are any.
    labels, sample_weight, groups
        Arrays (n,) of dask or NumPy; left out with a data frame.
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
    extras = {"labels": labels, "sample_weight": sample_weight, "groups": groups}
    if hasattr(scores, "to_delayed") and hasattr(scores, "columns"):
        if any(values is not None for values in extras.values()):
            raise BadPredictions("labels, weights and groups are columns of the data frame; leave the arguments out")
        return DaskRows(tuple(delayed(_of_frame)(part, number) for number, part in enumerate(scores.to_delayed())))
    if not is_dask(scores) or getattr(scores, "ndim", 0) != 2:
        raise BadPredictions(f"scores must be a dask array (rows, classes) or data frame; got {shown(scores)}")
    if labels is None:
        raise BadPredictions("labels are missing; pass the class number of each row after the scores")
    scores = scores.rechunk({1: -1})
    sizes = scores.chunks[0]
    if any(math.isnan(size) for size in sizes):
        raise BadPredictions("the sizes of the chunks are not known; call .compute_chunk_sizes() first")
    columns = [_blocks(name, values, sizes) for name, values in extras.items()]
    first_rows = np.cumsum([0, *sizes])[:-1].tolist()
    blocks = zip(scores.to_delayed()[:, 0], *columns, first_rows, strict=True)
    return DaskRows(tuple(delayed(_of_arrays)(*block, inputs) for block in blocks))


def _blocks(name: str, values: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Return one value per row in blocks of these sizes."""
    import dask.array as da

    if values is None:
        return [None] * len(sizes)
    array = da.asarray(values)
    if array.shape != (sum(sizes),):
        raise BadPredictions(f"{name} must have shape ({sum(sizes)},), one per row; got {array.shape}")
    blocks: list[Any] = array.rechunk((sizes,)).to_delayed().tolist()
    return blocks


def _of_arrays(scores: Array, labels: Array, weights: Any, groups: Any, first_row: int, inputs: str) -> Partition:
    if len(scores) == 0:
        return Partition()
    if inputs == "logits":
        checked = Predictions._trusted(scores, labels, weights, groups, None, None)
    else:
        checked = Predictions.from_probabilities(scores, labels, weights, groups)
    return Partition((Chunk(checked, inputs, labelled=True, first_row=first_row),))


def _of_frame(frame: Any, number: int) -> Partition:
    if len(frame) == 0:
        return Partition()
    names = [str(name) for name in frame.columns]
    table = Columns(names, lambda name: _cells(frame[name]), lambda row: f"partition {number}, row {row}")
    contents = contents_of_table(table)
    return Partition((Chunk(contents.checked(warn=False), contents.inputs, labelled=True, file=number),))


def _cells(column: Any) -> Any:
    values = column.to_numpy()
    return values if values.dtype.kind in "biuf" else [str(value) for value in values]


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
    n_resamples: int = 0,
    random_state: int = 0,
    client: Any = None,
) -> StreamingScorecard:
    """Score all rows, before calibration or after it.

    Parameters
    ----------
    dask_rows
        From `rows` or `read_files`.
    calibrator
        Apply this one first; None scores rows as they are.
    event, n_resamples, random_state
        As in `glayers.metrics.StreamingScorecard`.
    client
        A `distributed.Client`; by default the current one, or threads.

    Returns
    -------
    StreamingScorecard
        Its `result()` is the scorecard; `intervals()` and `error_bounds()` say how exact it is.

    Examples
    --------
    >>> import dask.array as da
    >>> logits = da.random.default_rng(0).normal(size=(100, 3), chunks=(40, 3))
    >>> dask_rows = rows(logits, np.arange(100) % 3)
    >>> 0 < score(dask_rows).result()["ks"] < 1
    True
    """
    settings = {"event": event, "n_resamples": n_resamples, "random_state": random_state}
    return Pass({"": calibrator}, settings).over(dask_rows.tasks, Cluster(client)).sums[""]


def fit(calibrator: Calibrator, dask_rows: DaskRows, *, random_state: int = 0, client: Any = None) -> Calibrator:
    """Fit a calibrator and return it.

    Parameters
    ----------
    calibrator
        Any. `TemperatureScaling` of logits uses all rows, by sums over them; other methods learn from a random subset,
        of whole groups, as large as `AutoCalibrator` learns from.
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
    >>> fit(TemperatureScaling(), dask_rows).diagnostics_.rows
    100
    """
    sample = sample_rows(dask_rows.tasks, Cluster(client), random_state)
    drawn = sample.result()
    calibrator.fit_predictions(drawn)
    if len(drawn) < sample.n_seen and isinstance(calibrator, TemperatureScaling) and calibrator.inputs == "logits":
        _use_all_rows(calibrator, dask_rows, sample.n_seen, Cluster(client))
    return calibrator


def _use_all_rows(calibrator: TemperatureScaling, dask_rows: DaskRows, n_rows: int, cluster: Cluster) -> None:
    """Refine a temperature by sums over all rows."""

    def all_sums(inverse_temperature: float, dtype: type) -> list[float]:
        def make(chunks: Iterable[Chunk]) -> list[float]:
            pairs = ((chunk.rows, np.empty(0)) for chunk in chunks)
            return PartDerivatives(inverse_temperature, dtype)(pairs)

        return list(cluster.fold(dask_rows.tasks, make, lambda one, other: add_up([one, other])))

    def sums(inverse_temperature: float, dtype: type) -> list[float]:
        *totals, weight, _ = all_sums(inverse_temperature, dtype)
        return [total / weight for total in totals]

    *_, weight, squares = all_sums(1.0, np.float64)
    best = refine_inverse_temperature(sums, 1 / calibrator.temperature_)
    best = shrunk(best, sums, weight**2 / squares)
    calibrator.map_ = Chain((Scale(np.asarray(best.factor)),))
    calibrator.diagnostics_ = replace(
        calibrator.diagnostics_,
        rows=n_rows,
        loss_before=sums(1.0, np.float64)[0],
        loss_after=best.loss,
        converged=best.converged,
        reason=best.reason or "converged",
    )


def compare(
    calibration: DaskRows | Predictions | Confidences,
    test: DaskRows,
    methods: Iterable[str] | Mapping[str, Calibrator] | None = None,
    *,
    inputs: str = "logits",
    random_state: int = 0,
    client: Any = None,
) -> Comparison:
    """Fit methods on a random subset of the calibration rows, one task each, and score them on all test rows.

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
    >>> given = rows(logits, np.arange(100) % 3)
    >>> list(compare(given, given, ["temperature"]).scorecards)
    ['uncalibrated', 'temperature']
    """
    cluster = Cluster(client)
    learned: Any = calibration
    if isinstance(calibration, DaskRows):
        learned = sample_rows(calibration.tasks, cluster, random_state).result()
    tested = sample_rows(test.tasks, cluster, random_state).result()
    chosen, left_out = calibrators_of(methods, learned, inputs, random_state)
    fits = {name: delayed(_fitted)(calibrator, learned) for name, calibrator in chosen.items()}
    outcomes: dict[str, Any] = cluster.result(delayed(dict)(fits))
    fitted = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Calibrator)}
    failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, str)}
    sums = Pass({UNCALIBRATED: None, **fitted}).over(test.tasks, cluster).sums
    cards = {name: each.result() for name, each in sums.items()}
    return Comparison(tested, fitted, cards, failed, random_state, left_out)


def _fitted(calibrator: Calibrator, learned: Any) -> Calibrator | str:
    """Fit a calibrator, or return why it cannot be fitted."""
    try:
        return calibrator._learn(two_classes(calibrator.inputs, learned))
    except (GlayersError, ModuleNotFoundError) as problem:
        return str(problem)
