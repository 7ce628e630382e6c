"""Probabilities and labels -> every metric of the scorecard as a function of row weights, for many resamples at once.

Whatever does not change with the weights is worked out first: losses row by row, sort orders, the bin of each row. A
metric is then a product with the weights and a small function of the result. At the sample's own weights each is the
scorecard's number.
"""

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.logits import probabilities_of
from glayers.metrics.old.bins import _inner_edges
from glayers.metrics.old.bins_batch import BINS, equal_mass_errors, equal_width_errors
from glayers.metrics.old.checks import Checked, check, top
from glayers.metrics.old.ranking import label_ranks, label_ranks_within, top_scores
from glayers.metrics.old.resampling import Batch, Resampling
from glayers.metrics.old.running_gaps import running_gaps
from glayers.metrics.old.scorecard import _RANKS, _TOP, Scorecard
from glayers.metrics.old.scores import _squares_and_own
from glayers.metrics.old.smooth_batch import smooth_ece_of_shares
from glayers.probabilities import check_probability_rows

STATISTICS = tuple(field.name for field in fields(Scorecard) if field.name not in ("rows", "classes"))
_ENTRIES = 4_000_000  # of a sparse matrix at once: 48 MB


class Rows(NamedTuple):
    """Checked predictions, with the log loss of each row: from logits where these are known."""

    given: Checked
    log_losses: Floats

    @classmethod
    def of_probabilities(cls, probabilities: object, labels: object, weights: object) -> "Rows":
        """Check probabilities; a label that was given 0 has an infinite loss."""
        given = check(probabilities, labels, weights)
        check_probability_rows(given.probabilities)
        own = given.probabilities[np.arange(len(given.labels)), given.labels].astype(np.float64)
        with np.errstate(divide="ignore"):
            return cls(given, -np.log(np.maximum(own, 0.0)))  # rounding may have left a zero just below 0

    @classmethod
    def of_logits(cls, logits: Array, labels: object, weights: object) -> "Rows":
        """Take softmax(logits) of checked logits, and losses from the logits themselves."""
        given = check(probabilities_of(logits), labels, weights)
        losses = np.empty(len(logits))
        with np.errstate(over="ignore"):  # logits 1e308 apart differ by infinity, and so does the loss
            for rows in row_blocks(*logits.shape):
                block = log_softmax(with_reference_class(logits[rows].astype(np.float64)))
                losses[rows] = -block[np.arange(len(block)), given.labels[rows]]
        return cls(given, losses)


Part: TypeAlias = Callable[[Batch], dict[str, Floats]]
Build: TypeAlias = Callable[[Rows], Part]


def evaluate(
    rows: Rows, names: Collection[str], resampling: Resampling, advance: Callable[[], None]
) -> dict[str, Floats]:
    """Return each named metric for every column of the resampling, calling `advance` after each batch of each pass.

    Neither the weights nor the sorted classes are ever held as a whole: weights are drawn anew in each pass.
    """
    found = {name: np.zeros(resampling.n_columns) for name in names}
    for builds in passes(rows.given, names):
        parts, first = [build(rows) for build in builds], 0
        for batch in resampling.batches():
            columns = slice(first, first + len(batch.totals))
            for part in parts:
                for name, values in part(batch).items():
                    if name in found:
                        found[name][columns] += values  # class-wise metrics come as sums over some classes at a time
            first = columns.stop
            advance()
    return found


def passes(given: Checked, names: Collection[str]) -> list[list[Build]]:
    """Return what must be built to evaluate the named metrics, and what of it at the same time."""
    builds = [build for its_names, build in _PARTS.items() if its_names & set(names)]
    if not set(names) & {"classwise_ks", "classwise_ece"}:
        return [builds]
    n_rows, n_classes = given.probabilities.shape
    at_once = max(1, _ENTRIES // n_rows)
    classwise: list[Build] = [
        partial(_classwise, columns=slice(first, min(first + at_once, n_classes)))
        for first in range(0, n_classes, at_once)
    ]
    return [builds + classwise[:1], *([build] for build in classwise[1:])]


def _means(rows: Rows) -> Part:
    given, event = rows.given, top(rows.given)
    n_classes = given.probabilities.shape[1]
    squares, own = _squares_and_own(given)
    infinite = np.isinf(rows.log_losses)
    losses = {
        "accuracy": event.hits,
        "top_5_accuracy": label_ranks(given.probabilities, given.labels) < min(_TOP, n_classes),
        "confidence": event.scores,
        "nll": np.where(infinite, 0.0, rows.log_losses),
        "brier_sum": squares - 2 * own + 1,
        "infinite": infinite,
    }
    stacked = np.array(list(losses.values()), dtype=np.float64)

    def part(batch: Batch) -> dict[str, Floats]:
        mean = dict(zip(losses, stacked @ batch.shares, strict=True))
        nll = np.where(mean["infinite"] > 0, np.inf, mean["nll"])  # 0 times infinity would be no number
        return mean | {"nll": nll, "brier": mean["brier_sum"] / n_classes}

    return part


def _top_ks(rows: Rows) -> Part:
    event = top(rows.given)
    gaps = running_gaps([(event.scores, event.hits)], _inner_edges(1))
    return lambda batch: {"ks": gaps.summed_ks(gaps.changes(batch.shares))}


def _mean_top_ks(rows: Rows) -> Part:
    given = rows.given
    ranks = min(_RANKS, given.probabilities.shape[1])
    scores = top_scores(given, ranks)
    place = label_ranks_within(given, scores)
    gaps = running_gaps(((scores[:, r], (place == r).astype(np.float64)) for r in range(ranks)), _inner_edges(1))
    return lambda batch: {"mean_top_ks": gaps.summed_ks(gaps.changes(batch.shares)) / ranks}


def _classwise(rows: Rows, columns: slice) -> Part:
    given = rows.given
    n_classes = given.probabilities.shape[1]
    scores = given.probabilities[:, columns].T.astype(np.float64, order="C")
    hits = (given.labels == np.arange(columns.start, columns.stop)[:, None]).astype(np.float64)
    gaps = running_gaps(zip(scores, hits, strict=True), _inner_edges(BINS))

    def part(batch: Batch) -> dict[str, Floats]:
        changes = gaps.changes(batch.shares)
        return {
            "classwise_ks": gaps.summed_ks(changes) / n_classes,
            "classwise_ece": gaps.summed_ece(changes) / n_classes,
        }

    return part


def _smooth_ece(rows: Rows) -> Part:
    errors = smooth_ece_of_shares(top(rows.given))
    return lambda batch: {"smooth_ece": errors(batch.shares)}


_PARTS: dict[frozenset[str], Build] = {
    frozenset({"accuracy", "top_5_accuracy", "confidence", "nll", "brier", "brier_sum"}): _means,
    frozenset({"ks"}): _top_ks,
    frozenset({"mean_top_ks"}): _mean_top_ks,
    frozenset({"smooth_ece"}): _smooth_ece,
    frozenset({"ece", "mce", "rms_calibration_error"}): lambda rows: equal_width_errors(top(rows.given)),
    frozenset({"ece_equal_mass", "debiased_ece", "debiased_rms_calibration_error"}): lambda rows: equal_mass_errors(
        top(rows.given)
    ),
}
