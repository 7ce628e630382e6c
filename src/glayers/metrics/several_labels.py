"""Predictions of rows that may have several labels -> the scores of each label, and a test of each."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glayers.checks import number_between
from glayers.errors import BadPredictions
from glayers.metrics.calibration_tests import OmnibusTest, calibration_test
from glayers.metrics.events import label, positive
from glayers.metrics.metric import METRICS
from glayers.metrics.scorecard import ByName, Scorecard, adjust, scorecard
from glayers.predictions import MultiLabelPredictions
from glayers.text_tables import Tabled, json_ready

# Of the surer of the two classes; everything else of one event is about the label being present.
_OF_THE_DECISION = ("accuracy", "confidence", "aurc", "excess_aurc", "accuracy_at_coverage", "coverage_at_accuracy")

__all__ = ["LabelScorecards", "label_scorecards", "label_tests"]


@dataclass(frozen=True)
class LabelScorecards(ByName[Scorecard], Tabled):
    """The scorecard of each label by its name or number: `cards["cat"]["nll"]`. It prints as a table.

    Attributes
    ----------
    by_name
        The scorecards; calibration errors are about the event that the row has the label. Labels that are missing in
        every row are left out.
    """

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each metric over the labels that have it: a label of no row has no AUROC."""
        means = {}
        for metric in next(iter(self.by_name.values())):
            values = [card[metric] for card in self.by_name.values() if not math.isnan(card[metric])]
            means[metric] = float(np.mean(values)) if values else math.nan
        return means

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return all numbers by label, and their mean, ready for JSON."""
        return {name: card.to_dict() for name, card in self.by_name.items()} | {"mean": json_ready(self.mean)}

    def cells(self) -> list[list[str]]:
        """Return a line per label, and their mean."""
        metrics = [METRICS[name] for name in ("nll", "ks", "ece", "brier", "accuracy")]
        cells = [["label", "rows", *(metric.short_label for metric in metrics)]]
        for name, card in self.by_name.items():
            cells.append([name, f"{card.rows:,}", *(metric.format(card[metric.name]) for metric in metrics)])
        mean = self.mean
        return [*cells, ["mean", "", *(metric.format(mean[metric.name]) for metric in metrics)]]


def label_scorecards(probabilities: object, labels: object = None, *, sample_weight: object = None) -> LabelScorecards:
    """Score rows that may have several labels: one scorecard per label, and their mean.

    Parameters
    ----------
    probabilities
        `MultiLabelPredictions`, or an array (n, labels): the probability that the row has the label. Rows need not sum
        to 1. The columns of a data frame name the labels.
    labels
        Array (n, labels) of 1 and 0: whether it has the label; NaN where nobody knows.
    sample_weight
        Array (n,) of importance weights.

    Returns
    -------
    LabelScorecards
        One `scorecard` per label, as for a model of two classes; calibration errors are about the label being present,
        as in the class-wise errors of Kull et al., NeurIPS 2019. Accuracy, confidence and the metrics of abstention
        are about the decision whether the row has it.

    Examples
    --------
    >>> cards = label_scorecards([[0.9, 0.2], [0.6, 0.7], [0.2, 0.4]], [[1, 0], [1, 1], [0, 1]])
    >>> round(cards["0"]["ks"], 3), round(cards.mean["accuracy"], 3)
    (0.1, 0.833)
    """
    given = _several(probabilities, labels, sample_weight)
    cards = {}
    for name, rows in given.by_label().items():
        whole = scorecard(rows)
        present = scorecard(rows, event=label(1))
        of_label = {metric: value for metric, value in present.items() if metric not in _OF_THE_DECISION}
        cards[name] = Scorecard(whole.by_name | of_label, whole.rows, whole.classes)
    return LabelScorecards(cards)


def label_tests(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    level: float = 0.95,
    n_resamples: int | None = None,
    random_state: int | None = 0,
) -> dict[str, OmnibusTest]:
    """Test for each label whether its probability is calibrated.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `label_scorecards`.
    level
        The level of all tests together: calibrated labels all pass with this probability.
    n_resamples, random_state
        The number of draws per label, by default enough for the number of labels, and their seed.

    Returns
    -------
    dict
        The `calibration_test` of the event "the row has the label", by label. Its p-values hold for all labels
        together, by Holm's correction. They are nan for a label that is known in too few groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2000, 2))
    >>> labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int)
    >>> tests = label_tests(MultiLabelPredictions(z * [1.0, 3.0], labels, label_names=["cat", "dog"]))
    >>> [tests[name].rejected for name in ("cat", "dog")]
    [False, True]
    """
    by_label = _several(probabilities, labels, sample_weight).by_label()
    if n_resamples is None:
        # The smallest p-value times the number of labels must stay below 1 - level.
        n_resamples = max(999, math.ceil(3 * len(by_label) / (1 - number_between(level, "level", 0, 1))))
    settings: dict[str, Any] = {"level": level, "n_resamples": n_resamples, "random_state": random_state}
    tests = {}
    for name, rows in by_label.items():
        one_group = rows.groups is not None and len(np.unique(rows.groups)) == 1
        if one_group:  # cannot be drawn, and neither can any two
            rows = rows._trusted(**vars(rows) | {"groups": np.arange(len(rows)) > 0})
        tests[name] = calibration_test(rows, event=positive(), progress=False, **settings)
        if one_group:
            tests[name] = replace(tests[name], groups=1)
    p_values = adjust([test.p_value for test in tests.values()]).tolist()
    for (name, test), p_value in zip(tests.items(), p_values, strict=True):
        tests[name] = replace(test, adjusted={of: max(p, p_value) for of, p in test.adjusted.items()})
    return tests


def _several(probabilities: object, labels: object, sample_weight: object) -> MultiLabelPredictions:
    """Return checked rows; labels and weights come with the record."""
    if not isinstance(probabilities, MultiLabelPredictions):
        return MultiLabelPredictions.from_probabilities(probabilities, labels, sample_weight)
    if labels is not None or sample_weight is not None:
        raise BadPredictions("labels and weights come with the MultiLabelPredictions; leave them out here")
    return probabilities
