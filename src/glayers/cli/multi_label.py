"""Files whose rows may have several labels -> a calibrator of each label, calibrated rows and scores of each label.

Such a file is `.npz` or `.json`, with labels (rows, labels) of 0 and 1. New rows without labels may have any format.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glayers.arrays import to_floats
from glayers.checks import check_counts, check_groups, check_label_matrix, two_dimensional
from glayers.cli import arguments as arg
from glayers.cli.runtime import flag
from glayers.errors import BadFile, shown
from glayers.metrics.scorecard import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents
from glayers.predictions.source import Source

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator, MultiLabelCalibrator

SeveralLabels = Annotated[
    bool, flag("--several-labels", text="Rows may have several labels: labels is a matrix of 0 and 1.")
]


def read_labels(source: Source, needs_labels: bool = True) -> dict[str, Contents]:
    """Read every part of a file, and check the scores and the labels (rows, labels)."""

    def checked(contents: Contents) -> Contents:
        if contents.inputs == "confidence":
            raise BadFile("holds a confidence per row; several labels need logits or probabilities of each label")
        scores = two_dimensional(to_floats(contents.scores, contents.inputs), contents.inputs)
        names = contents.class_names
        if names is not None and not len(names) == len(set(names)) == scores.shape[1]:
            raise BadFile(f"class_names must be {scores.shape[1]} different names, one per label; got {shown(names)}")
        fields: dict[str, Any] = {contents.inputs: scores}
        if contents.labels is not None:
            fields["labels"] = check_label_matrix(contents.labels, scores.shape)
        elif needs_labels:
            raise BadFile(contents.no_labels)
        return replace(contents, **fields)

    return arg.read_contents(source, checked)


def fit_labels(method: "Calibrator", contents: Contents) -> "MultiLabelCalibrator":
    """Fit one calibrator per label."""
    from glayers.calibrators import MultiLabelCalibrator

    scores = contents.scores
    labels = np.asarray(contents.labels)
    groups = contents.groups
    if contents.counts is not None:
        times = check_counts(contents.counts, *scores.shape)
        repeated = np.repeat(np.arange(len(scores)), times)
        scores = scores[repeated]
        labels = labels[repeated]
        groups = None if groups is None else check_groups(groups, len(times))[repeated]
    fitted = MultiLabelCalibrator(method).fit(scores, labels, contents.weights, groups)
    fitted.class_names_ = contents.class_names
    return fitted


def apply_to_labels(fitted: "MultiLabelCalibrator", contents: Contents, logits: bool) -> Contents:
    """Return calibrated probabilities or logits of each label; the rest stays as it was."""
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
    scores = contents.scores
    labels = np.asarray(contents.labels)
    make = Predictions if contents.inputs == "logits" else Predictions.from_probabilities
    extras: dict[str, Any] = {"weights": contents.weights, "counts": contents.counts}
    names = contents.class_names or tuple(map(str, range(scores.shape[1])))
    cards = {}
    for number, name in enumerate(names):
        cards[name] = label_scorecard(make(scores[:, [number]], labels[:, number], **extras))
    return LabelScorecards(cards)
