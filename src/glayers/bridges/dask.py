"""Dask arrays, data frames or files -> scores, calibrated arrays, fitted calibrators and comparisons, on any cluster.

Rows stay where they are: scoring adds up accumulators in a tree, temperature scaling adds up its loss and derivatives,
and other methods learn from a random subset that one pass draws. Tasks do not change their inputs, so a task that a
worker lost can be run again. Numbers are those of one machine, whatever the partition.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glayers.arrays import Array, is_dask
from glayers.calibrators import Calibrator, TemperatureScaling
from glayers.calibrators.auto import enough_rows
from glayers.comparison import UNCALIBRATED, Comparison, calibrators_of
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.fitting.temperature import PartDerivatives, add_up, refine_inverse_temperature
from glayers.maps import Chain, Scale
from glayers.metrics import Event, StreamingScorecard, top
from glayers.metrics.row_draws import RowSample, row_places
from glayers.predictions import Confidences, Predictions
from glayers.predictions.chunks import Source, files_of
from glayers.predictions.formats import either_record
from glayers.predictions.predictions import two_classes
from glayers.predictions.tables import Columns, contents_of_table

try:
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ModuleNotFoundError('dask is missing: pip install "glayers[dask]"', name="dask") from error

__all__ = ["DaskRows", "compare", "fit", "read_files", "rows", "score"]

_AT_ONCE = 8  # results that one task merges
_Part = tuple[Predictions | Confidences, Array]  # some rows and their places


@dataclass(frozen=True)
class DaskRows:
    """Rows on a cluster: one task per partition, each of which gives an iterable of some rows and their places.

    Use `rows` or `read_files` to make them.
    """

    parts: tuple[Delayed, ...]

    def reduced(self, each: Callable[[Iterable[_Part]], Any], merge: Callable[[list[Any]], Any], client: Any) -> Any:
        """Return what `each` makes of the partitions, merged in a tree."""
        level = [delayed(each, pure=True)(part) for part in self.parts]
        while len(level) > 1:
            level = [delayed(merge)(level[i : i + _AT_ONCE]) for i in range(0, len(level), _AT_ONCE)]
        return computed(level[0], client)


def computed(task: Delayed, client: Any) -> Any:
    """Run a task on a client's cluster, or where dask runs by default: the current client, or threads."""
    return task.compute() if client is None else client.compute(task).result()


def run(function: Callable[..., Any], items: Iterable[Any], *common: Any, client: Any) -> list[Any]:
    """Return function(item, *common) of each item, each a task; what they have in common is sent once."""
    shared = [delayed(each, traverse=False) for each in common]
    return list(computed(delayed(list)([delayed(function)(item, *shared) for item in items]), client))


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
    DaskRows(parts=(...))
    """
    if hasattr(scores, "to_delayed") and hasattr(scores, "columns"):
        if labels is not None or sample_weight is not None or groups is not None:
            raise BadPredictions("labels, weights and groups are columns of the data frame; leave the arguments out")
        return DaskRows(tuple(delayed(_of_frame)(part, n) for n, part in enumerate(scores.to_delayed())))
    if not is_dask(scores) or getattr(scores, "ndim", 0) != 2:
        raise BadPredictions(f"scores must be a dask array (rows, classes) or data frame; got {shown(scores)}")
    if labels is None:
        raise BadPredictions("labels are missing; pass the class number of each row after the scores")
    import dask.array as da

    scores = scores.rechunk({1: -1})
    sizes = scores.chunks[0]
    if any(math.isnan(size) for size in sizes):
        raise BadPredictions("the sizes of the chunks are not known; call .compute_chunk_sizes() first")
    extras = []
    for name, values in (("labels", labels), ("sample_weight", sample_weight), ("groups", groups)):
        if values is None:
            extras.append([None] * len(sizes))
            continue
        array = da.asarray(values)
        if array.shape != scores.shape[:1]:
            raise BadPredictions(f"{name} must have shape ({scores.shape[0]},), one per row; got {array.shape}")
        extras.append(array.rechunk((sizes,)).to_delayed().tolist())
    firsts = np.cumsum([0, *sizes])[:-1].tolist()
    blocks = zip(scores.to_delayed()[:, 0], *extras, firsts, strict=True)
    return DaskRows(tuple(delayed(_of_arrays)(*block, inputs) for block in blocks))


def read_files(*paths: str | Path, entries: int | None = None, **how: Any) -> DaskRows:
    """Return the rows of files, directories and globs, one task per file; workers must see the same paths.

    Parameters
    ----------
    paths
        Files that `glayers score` reads.
    entries
        The number of scores that a worker holds at a time; the default is 8 million.
    how
        `part`, `inputs` and `columns`, as in `read_predictions`.

    Returns
    -------
    DaskRows

    Examples
    --------
    >>> read_files("logits/", "more/*.parquet")  # doctest: +SKIP
    """
    sized: dict[str, Any] = {} if entries is None else {"entries": entries}
    return rows_of_source(Source(files_of([Path(path) for path in paths]), **how, **sized))


def rows_of_source(source: Source) -> DaskRows:
    """Return the rows of files, one task per file."""
    return DaskRows(tuple(delayed(_OfFile)(source, number) for number in range(len(source.files))))


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


def score(
    given: DaskRows,
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
    given
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
    >>> given = rows(logits, np.arange(100) % 3)
    >>> 0 < score(given).result()["ks"] < 1
    True
    """
    settings = {"event": event, "n_resamples": n_resamples, "random_state": random_state}
    found: StreamingScorecard = given.reduced(_Scoring({"": calibrator}, settings), _merged, client)[""]
    return found


def sample_of(given: DaskRows, random_state: int, client: Any, most: int | None = None) -> RowSample:
    """Return a random subset of the rows, by default as large as `AutoCalibrator` learns from."""
    found: RowSample = given.reduced(_Sampling(random_state, most), _merged_samples, client)
    return found


def fit(calibrator: Calibrator, given: DaskRows, *, random_state: int = 0, client: Any = None) -> Calibrator:
    """Fit a calibrator and return it.

    Parameters
    ----------
    calibrator
        Any. `TemperatureScaling` of logits uses all rows, by sums over them; other methods learn from a random subset,
        of whole groups, as large as `AutoCalibrator` learns from. The families of `AutoCalibrator` are tasks.
    given
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
    >>> given = rows(logits, np.arange(100) % 3)
    >>> fit(TemperatureScaling(), given).diagnostics_.rows
    100
    """
    sample = sample_of(given, random_state, client)
    some: Any = sample.result()
    calibrator.__dict__["_run"] = partial(run, client=client)  # how `AutoCalibrator` fits its families
    try:
        calibrator.fit_predictions(some)
    finally:
        del calibrator.__dict__["_run"]
    if len(some) == sample.n_seen or type(calibrator) is not TemperatureScaling or calibrator.inputs != "logits":
        return calibrator

    def sums(b: float, dtype: type) -> list[float]:
        found = given.reduced(PartDerivatives(b, dtype), add_up, client)
        return [value / found[-1] for value in found[:-1]]

    best = refine_inverse_temperature(sums, 1 / calibrator.temperature_)
    calibrator.map_ = Chain((Scale(np.asarray(best.factor)),))
    calibrator.diagnostics_ = replace(
        calibrator.diagnostics_,
        rows=sample.n_seen,
        loss_before=sums(1.0, np.float64)[0],
        loss_after=best.loss,
        converged=best.converged,
        reason=best.reason or "converged",
    )
    return calibrator


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
    learned: Any = calibration
    if isinstance(calibration, DaskRows):
        learned = sample_of(calibration, random_state, client).result()
    tested = sample_of(test, random_state, client).result()
    chosen, left_out = calibrators_of(methods, learned, inputs, random_state)
    fits = {name: delayed(_fitted)(calibrator, learned) for name, calibrator in chosen.items()}
    outcomes: dict[str, Any] = computed(delayed(dict)(fits), client)
    fitted = {name: found for name, found in outcomes.items() if isinstance(found, Calibrator)}
    failed = {name: found for name, found in outcomes.items() if isinstance(found, str)}
    sums = test.reduced(_Scoring({UNCALIBRATED: None, **fitted}, {}), _merged, client)
    cards = {name: each.result() for name, each in sums.items()}
    return Comparison(tested, fitted, cards, failed, random_state, left_out)


def _fitted(calibrator: Calibrator, given: Any) -> Calibrator | str:
    try:
        return calibrator._learn(two_classes(calibrator.inputs, given))
    except (GlayersError, ModuleNotFoundError) as problem:
        return str(problem)


def _of_arrays(scores: Array, labels: Array, weights: Any, groups: Any, first: int, inputs: str) -> list[_Part]:
    if len(scores) == 0:
        return []
    if inputs == "logits":
        some = Predictions._trusted(scores, labels, weights, groups, None, None)
    else:
        some = Predictions.from_probabilities(scores, labels, weights, groups)
    return [(some, row_places(first, len(scores)))]


def _of_frame(frame: Any, number: int) -> list[_Part]:
    if len(frame) == 0:
        return []
    names = [str(name) for name in frame.columns]
    table = Columns(names, lambda name: _cells(frame[name]), lambda row: f"partition {number}, row {row}")
    (contents,) = contents_of_table(table).values()
    some = either_record(contents, warned=False)
    return [(some, row_places(0, len(some), number))]


def _cells(column: Any) -> Any:
    values = column.to_numpy()
    return values if values.dtype.kind in "biuf" else [str(value) for value in values]


@dataclass(frozen=True)
class _OfFile:
    """The rows of one file; a task that uses them reads the file, so that it never travels."""

    source: Source
    number: int

    def __iter__(self) -> Iterator[_Part]:
        for chunk in self.source.chunks(self.number):
            yield chunk.rows, row_places(chunk.first_row, len(chunk.rows), chunk.file)


@dataclass(frozen=True)
class _Scoring:
    calibrators: Mapping[str, Calibrator | None]
    settings: Mapping[str, Any]

    def __call__(self, part: Iterable[_Part]) -> dict[str, StreamingScorecard]:
        found = {name: StreamingScorecard("logits", **self.settings) for name in self.calibrators}
        for some, places in part:
            for name, calibrator in self.calibrators.items():
                found[name].update(some if calibrator is None else calibrator.apply(some), row_ids=places)
        return found


def _merged(several: list[dict[str, StreamingScorecard]]) -> dict[str, StreamingScorecard]:
    return {
        name: reduce(StreamingScorecard.merge, (each[name] for each in several), first.alike())
        for name, first in several[0].items()
    }


@dataclass(frozen=True)
class _Sampling:
    random_state: int
    most: int | None

    def __call__(self, part: Iterable[_Part]) -> RowSample:
        found: RowSample | None = None
        for some, places in part:
            if found is None:
                width = some.n_classes if isinstance(some, Predictions) else 1
                found = RowSample(self.most or enough_rows(width), self.random_state)
            found.update(some, places)
        return found or RowSample(1, self.random_state)


def _merged_samples(several: list[RowSample]) -> RowSample:
    most = max(each.most for each in several)
    return reduce(RowSample.merge, several, RowSample(most, several[0].random_state))
