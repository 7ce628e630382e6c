"""Rows of any number of files -> scores of all of them, and a random sample, in one pass."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glayers.errors import BadFile
from glayers.metrics import Event, StreamingScorecard, top
from glayers.metrics.streaming import RowSample, row_places
from glayers.predictions import Predictions
from glayers.predictions.source import Chunk, Source

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

_TESTED_ROWS = 25_000  # of the random sample for tests, which need rows in memory
_TESTED_ENTRIES = 2**22  # scores of that sample


def rows_to_test(n_classes: int) -> int:
    """Return how many rows tests of calibration see."""
    return min(_TESTED_ROWS, _TESTED_ENTRIES // n_classes)


def collect(
    source: Source,
    versions: Mapping[str, "Calibrator | None"],
    sample_size: Callable[[int], int],
    event: Event = top,
    random_state: int = 0,
    progress: bool | None = False,
) -> tuple[dict[str, Any], RowSample, dict[str, StreamingScorecard]]:
    """Return what kind of rows the files hold, a random sample of them, and the scores of all of them by version.

    A version is a calibrator to apply, or None for the rows as they are. `sample_size` says how many rows to draw,
    given the number of classes.
    """

    def collect_file(_: int, chunks: Iterable[Chunk]) -> tuple[dict[str, Any], Any, Any]:
        kind: dict[str, Any] = {}
        sample: Any = None
        sums = {name: StreamingScorecard("logits", event=event) for name in versions}
        for chunk in chunks:
            if not kind:
                kind = _kind_of(chunk)
                sample = RowSample(sample_size(kind["classes"]), random_state)
            sample.update(chunk.rows, row_places(chunk.first_row, len(chunk.rows), chunk.file))
            if chunk.labelled:
                for name, calibrator in versions.items():
                    sums[name].update(chunk.rows if calibrator is None else calibrator.apply(chunk.rows))
        return kind, sample, sums

    results = source.map(collect_file, progress)
    kind, sample, sums = next(results)
    for path, (other_kind, other_sample, other_sums) in zip(source.files[1:], results, strict=True):
        different = [name for name, value in kind.items() if other_kind[name] != value]
        if different:
            raise BadFile(f"{path}: differs from {source.files[0]} in {' and '.join(different)}; handle them apart")
        sample.merge(other_sample)
        for name, scores in sums.items():
            scores.merge(other_sums[name])
    return kind, sample, sums


def _kind_of(chunk: Chunk) -> dict[str, Any]:
    """Return what rows that are handled together must have in common."""
    kind = {"inputs": chunk.inputs, "labels": chunk.labelled, "classes": 1, "class names": None}
    if isinstance(chunk.rows, Predictions):
        kind |= {"classes": chunk.rows.n_classes, "class names": chunk.rows.class_names}
    return kind
