"""Rows of any number of files -> scores of all of them, and a random sample, in one pass.

An executor says where the pass runs: `Threads` of this machine, or `Cluster` of `glayers.bridges.dask`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glayers.errors import BadFile
from glayers.metrics import StreamingScorecard
from glayers.metrics.row_draws import RowSample, row_places
from glayers.predictions.source import Chunk, Executor

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator

TESTED_ROWS = 25_000  # of the random sample for tests, which need rows in memory
_TESTED_ENTRIES = 2**22  # scores of that sample


def rows_to_test(n_classes: int) -> int:
    """Return how many rows tests of calibration see."""
    return min(TESTED_ROWS, _TESTED_ENTRIES // n_classes)


@dataclass
class Collected:
    """What a pass found: sums by name, a random sample of the rows, and whether they have labels."""

    sums: dict[str, StreamingScorecard]
    sample: Any = None  # a RowSample, if one is asked for and there are rows
    labelled: bool | None = None  # None before the first row

    def merge(self, other: "Collected") -> "Collected":
        """Add what was found elsewhere."""
        for name, sums in other.sums.items():
            self.sums[name].merge(sums)
        if self.sample is None:
            self.sample = other.sample
        elif other.sample is not None:
            self.sample.merge(other.sample)
        self.labelled = _same_answer(self.labelled, other.labelled)
        return self


@dataclass(frozen=True)
class Pass:
    """What to collect from chunks of rows.

    Parameters
    ----------
    calibrators
        What to apply before the rows are scored, by name; None scores them as they are.
    settings
        Those of `StreamingScorecard`.
    sample_size
        The number of rows to draw, given the number of classes; None draws none.
    random_state
        The seed of the sample.
    """

    calibrators: Mapping[str, "Calibrator | None"] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sample_size: Callable[[int], int] | None = None
    random_state: int = 0

    def __call__(self, chunks: Iterable[Chunk]) -> Collected:
        """Return the sums and the sample of some chunks."""
        collected = Collected({name: StreamingScorecard("logits", **self.settings) for name in self.calibrators})
        for chunk in chunks:
            collected.labelled = _same_answer(collected.labelled, chunk.labelled, f"{chunk.path}: ")
            places = row_places(chunk.first_row, len(chunk.rows), chunk.file)
            if chunk.labelled:
                for name, calibrator in self.calibrators.items():
                    rows = chunk.rows if calibrator is None else calibrator.apply(chunk.rows)
                    collected.sums[name].update(rows)
            if self.sample_size is not None:
                if collected.sample is None:
                    collected.sample = RowSample(self.sample_size(chunk.n_classes), self.random_state)
                collected.sample.update(chunk.rows, places)
        return collected

    def over(self, tasks: Sequence[Any], executor: Executor) -> Collected:
        """Return the sums and the sample of all rows of tasks."""
        collected: Collected = executor.fold(tasks, self, Collected.merge)
        if collected.labelled is None:
            raise BadFile("there are no rows")
        return collected


def sample_rows(tasks: Sequence[Any], executor: Executor, random_state: int) -> RowSample:
    """Return a random sample of rows, as many as every method needs to be fitted."""
    from glayers.calibrators.auto import enough_rows  # on first use: scores do not need it

    sample: RowSample = Pass(sample_size=enough_rows, random_state=random_state).over(tasks, executor).sample
    return sample


def _same_answer(one: bool | None, other: bool | None, where: str = "") -> bool | None:
    if one is None:
        return other
    if other not in (None, one):
        raise BadFile(f"{where}some files have labels and others have none; score them apart")
    return one
