"""Files whose rows may have several labels -> a calibrator of each label, calibrated rows and scores of each label.

Such a file is `.npz` or `.json`, with labels (rows, labels) of 0 and 1. New rows without labels may have any format.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers.arrays import to_floats
from glayers.checks import check_counts, check_label_matrix, two_dimensional
from glayers.cli.arguments import read_contents
from glayers.errors import BadFile, BadPredictions, shown
from glayers.metrics.scorecard import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents
from glayers.predictions.source import Source

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator, MultiLabelCalibrator


def load_labels(model: Path) -> "MultiLabelCalibrator":
    """Read a calibrator of several labels."""
    from glayers.calibrators import MultiLabelCalibrator, load

    fitted = load(model)
    if not isinstance(fitted, MultiLabelCalibrator):
        raise BadPredictions(f"{model}: was not fitted with --several-labels")
    return fitted


def read_labels(source: Source) -> dict[str, Contents]:
    """Read every part of a file, and check the scores and the labels (rows, labels)."""

    def checked(contents: Contents) -> Contents:
        contents = _checked_scores(contents)
        if contents.labels is None:
            raise BadFile(contents.no_labels)
        contents = replace(contents, labels=check_label_matrix(contents.labels, contents.scores.shape))
        if contents.counts is None:
            return contents
        repeated = np.repeat(np.arange(len(contents)), check_counts(contents.counts, *contents.scores.shape))
        fields: dict[str, Any] = {name: values[repeated] for name, values in contents.arrays().items()}
        return replace(contents, **{**fields, "counts": None})

    return read_contents(source, checked)


def _checked_scores(contents: Contents) -> Contents:
    """Check the scores (rows, labels) and the names of the labels."""
    if contents.inputs == "confidence":
        raise BadFile("holds a confidence per row; several labels need logits or probabilities of each label")
    scores = two_dimensional(to_floats(contents.scores, contents.inputs), contents.inputs)
    names = contents.class_names
    if names is not None and not len(names) == len(set(names)) == scores.shape[1]:
        raise BadFile(f"class_names must be {scores.shape[1]} different names, one per label; got {shown(names)}")
    fields: dict[str, Any] = {contents.inputs: scores}
    return replace(contents, **fields)


def fit_labels(method: "Calibrator", contents: Contents) -> "MultiLabelCalibrator":
    """Fit one calibrator per label."""
    from glayers.calibrators import MultiLabelCalibrator

    fitted = MultiLabelCalibrator(method).fit(contents.scores, contents.labels, contents.weights, contents.groups)
    fitted.class_names_ = contents.class_names
    return fitted


def apply_to_labels(fitted: "MultiLabelCalibrator", contents: Contents, logits: bool) -> Contents:
    """Return calibrated probabilities or logits of each label; the rest stays as it was."""
    contents = _checked_scores(contents)
    if contents.inputs != fitted.inputs:
        raise BadFile(f"holds {contents.inputs}, but the model was fitted on {fitted.inputs}")
    fitted._check_names(contents.class_names)
    fields: dict[str, Any] = {"logits": None, "probabilities": None}
    if logits:
        fields["logits"] = fitted.transform(contents.scores)
    else:
        fields["probabilities"] = fitted.predict_proba(contents.scores)
    return replace(contents, **fields, class_names=contents.class_names or fitted.class_names_)


def label_scores(contents: Contents) -> LabelScorecards:
    """Return the scores of each label."""
    labels = np.asarray(contents.labels)
    make = Predictions if contents.inputs == "logits" else Predictions.from_probabilities
    cards = {}
    for number, name in enumerate(contents.class_names or range(labels.shape[1])):
        rows = make(contents.scores[:, [number]], labels[:, number], contents.weights)
        cards[str(name)] = label_scorecard(rows)
    return LabelScorecards(cards)
