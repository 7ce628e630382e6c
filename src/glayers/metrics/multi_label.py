"""Probabilities of several labels per row -> the scorecard of each label, and their mean."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glayers.arrays import column_names, to_floats, to_numbers
from glayers.errors import BadPredictions
from glayers.metrics.events import label
from glayers.metrics.registry import METRICS
from glayers.metrics.scorecard import Scorecard, scorecard
from glayers.predictions.predictions import Predictions
from glayers.text_tables import aligned_table, markdown_table

__all__ = ["LabelScorecards", "label_scorecards"]

_COLUMNS = ("nll", "ks", "ece", "brier", "accuracy")


@dataclass(frozen=True)
class LabelScorecards(Mapping[str, Scorecard]):
    """The scorecard of each label by its name or number: `cards["cat"]["nll"]`. It prints as a table.

    Attributes
    ----------
    cards
        The scorecards; calibration errors are about the event that the row has the label.
    """

    cards: dict[str, Scorecard]

    def __getitem__(self, name: str) -> Scorecard:
        return self.cards[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cards)

    def __len__(self) -> int:
        return len(self.cards)

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each metric over the labels."""
        cards = list(self.cards.values())
        return {metric: float(np.mean([card[metric] for card in cards])) for metric in cards[0]}

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return all numbers by label, and their mean, ready for JSON."""
        return {name: card.to_dict() for name, card in self.cards.items()} | {"mean": self.mean}

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per label, and their mean."""
        return markdown_table(self._cells("label"))

    def __str__(self) -> str:
        return aligned_table(self._cells(""))

    def _cells(self, corner: str) -> list[list[str]]:
        metrics = [METRICS[name] for name in _COLUMNS]
        lines: dict[str, Mapping[str, float]] = {**self.cards, "mean": self.mean}
        cells = [[corner, *(metric.short_label for metric in metrics)]]
        for name, numbers in lines.items():
            cells.append([name, *(metric.format(numbers[metric.name]) for metric in metrics)])
        return cells


def label_scorecards(probabilities: object, labels: object, *, sample_weight: object = None) -> LabelScorecards:
    """Score rows that may have several labels: one scorecard per label, and their mean.

    Parameters
    ----------
    probabilities
        Array (n, labels): the probability that the row has the label. Rows need not sum to 1. The columns of a data
        frame name the labels.
    labels
        Array (n, labels) of 1 and 0: whether it has the label.
    sample_weight
        Array (n,) of importance weights.

    Returns
    -------
    LabelScorecards
        One `scorecard` per label, as for a model of two classes; calibration errors are about the label being present,
        as in the class-wise errors of Kull et al., NeurIPS 2019.

    Examples
    --------
    >>> cards = label_scorecards([[0.9, 0.2], [0.6, 0.7], [0.2, 0.4]], [[1, 0], [1, 1], [0, 1]])
    >>> round(cards["0"]["ks"], 3), round(cards.mean["accuracy"], 3)
    (0.1, 0.833)
    """
    p = to_floats(probabilities, "probabilities")
    truth = to_numbers(labels, "labels")
    if p.ndim != 2 or p.shape != truth.shape or p.size == 0:
        raise BadPredictions(
            f"probabilities and labels must both have shape (rows, labels); got {p.shape} and {truth.shape}"
        )
    names = column_names(probabilities) or tuple(map(str, range(p.shape[1])))
    cards = {}
    for c, name in enumerate(names):
        rows = Predictions.from_probabilities(p[:, [c]], truth[:, c], sample_weight)
        cards[name] = label_scorecard(rows)
    return LabelScorecards(cards)


def label_scorecard(rows: Predictions) -> Scorecard:
    """Return the scores of two classes; calibration errors are those of the label's probability."""
    whole = scorecard(rows)
    present = scorecard(rows, event=label(1))
    errors = {name: value for name, value in present.items() if name not in ("accuracy", "confidence")}
    return Scorecard(whole.values_by_name | errors, whole.rows, whole.classes)
