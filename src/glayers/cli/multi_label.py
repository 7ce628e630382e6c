"""Files whose rows may have several labels -> checked contents, calibrated ones, and scores of each label.

Such a file is `.npz` or `.json`, with labels (rows, labels) of 0 and 1. New rows without labels may have any format.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers.arrays import to_floats
from glayers.checks import check_label_matrix, two_dimensional
from glayers.errors import BadFile, shown
from glayers.metrics.scorecard import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents

if TYPE_CHECKING:
    from glayers.calibrators import MultiLabelCalibrator


def checked_labels(contents: Contents) -> Contents:
    """Check the scores (rows, labels), and the labels if there are any."""
    if contents.inputs == "confidence" or contents.counts is not None:
        raise BadFile("several labels need logits or probabilities of each label and row, without counts")
    scores = two_dimensional(to_floats(contents.scores, contents.inputs), contents.inputs)
    names = contents.class_names
    if names is not None and not len(names) == len(set(names)) == scores.shape[1]:
        raise BadFile(f"class_names must be {scores.shape[1]} different names, one per label; got {shown(names)}")
    fields: dict[str, Any] = {contents.inputs: scores}
    if contents.labels is not None:
        fields["labels"] = check_label_matrix(contents.labels, scores.shape)
    return replace(contents, **fields)


def with_labels(contents: Contents) -> Contents:
    """Check scores and labels (rows, labels)."""
    if contents.labels is None:
        raise BadFile(contents.no_labels)
    return checked_labels(contents)


def apply_to_labels(fitted: "MultiLabelCalibrator", contents: Contents, logits: bool) -> Contents:
    """Return calibrated probabilities or logits of each label; the rest stays as it was."""
    if contents.inputs != fitted.inputs:
        raise BadFile(f"holds {contents.inputs}, but the model was fitted on {fitted.inputs}")
    fitted._check_names(contents.class_names)
    scores = checked_labels(contents).scores
    fields: dict[str, Any] = {"logits": None, "probabilities": None}
    if logits:
        fields["logits"] = fitted.transform(scores)
    else:
        fields["probabilities"] = fitted.predict_proba(scores)
    return replace(contents, **fields, class_names=contents.class_names or fitted.class_names_)


def label_scores(contents: Contents) -> LabelScorecards:
    """Return the scores of each label."""
    labels = np.asarray(contents.labels)
    make = Predictions if contents.inputs == "logits" else Predictions.from_probabilities
    cards = {}
    for number, name in enumerate(contents.class_names or range(labels.shape[1])):
        cards[str(name)] = label_scorecard(make(contents.scores[:, [number]], labels[:, number], contents.weights))
    return LabelScorecards(cards)
