"""Files whose rows may have several labels -> calibrators and scores of each label, for `fit`, `apply` and `score`.

Such a file is `.npz` or `.json`, with labels (rows, labels) of 0 and 1. New rows without labels may have any format.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from glayers.arrays import Array, to_floats
from glayers.checks import check_counts, check_groups, check_label_matrix, two_dimensional
from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, title
from glayers.errors import BadFile, shown
from glayers.metrics.scorecard import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents
from glayers.predictions.source import Source

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.serving.predictor import LabelPredictor

SeveralLabels = Annotated[
    bool, flag("--several-labels", text="Rows may have several labels: labels is a matrix of 0 and 1.")
]


@dataclass(frozen=True)
class LabelRows:
    """Scores (rows, labels) of what `contents` holds, checked."""

    scores: Array
    contents: Contents

    @classmethod
    def of(cls, contents: Contents) -> Self:
        """Return checked scores of every label."""
        if contents.inputs == "confidence":
            raise BadFile("holds a confidence per row; several labels need logits or probabilities of each label")
        scores = two_dimensional(to_floats(contents.scores, contents.inputs), contents.inputs)
        names = contents.class_names
        if names is not None and not len(names) == len(set(names)) == scores.shape[1]:
            raise BadFile(f"class_names must be {scores.shape[1]} different names, one per label; got {shown(names)}")
        return cls(scores, contents)

    @property
    def names(self) -> list[str]:
        """The names of the labels, or their numbers."""
        return list(self.contents.class_names or map(str, range(self.scores.shape[1])))

    def labels(self) -> Array:
        """Return the labels (rows, labels)."""
        if self.contents.labels is None:
            raise BadFile(self.contents.no_labels)
        return check_label_matrix(self.contents.labels, self.scores.shape)


def read_label_rows(source: Source) -> dict[str, LabelRows]:
    """Read every part of a file."""
    return arg.read_contents(source, LabelRows.of)


def fit_each_label(
    label_rows: LabelRows, name: str, method: "Calibrator", target: arg.Output, as_json: bool, quiet: bool
) -> None:
    """Fit one calibrator per label, write them to one file, and say so."""
    from glayers.calibrators import MultiLabelCalibrator

    contents = label_rows.contents
    scores = label_rows.scores
    labels = label_rows.labels()
    groups = contents.groups
    if contents.counts is not None:
        times = check_counts(contents.counts, *scores.shape)
        repeated = np.repeat(np.arange(len(scores)), times)
        scores = scores[repeated]
        labels = labels[repeated]
        groups = None if groups is None else check_groups(groups, len(times))[repeated]
    calibrator = MultiLabelCalibrator(method.set_params(inputs=contents.inputs))
    calibrator.fit(scores, labels, contents.weights, groups)
    calibrator.label_names_ = contents.class_names
    target.check()
    calibrator.save(target.path)
    facts = [each.diagnostics_ for each in calibrator.calibrators_]
    if as_json:
        by_label = {label: each.to_dict() for label, each in zip(label_rows.names, facts, strict=True)}
        show_json({"method": name, "output": str(target.path), "labels": by_label})
    elif not quiet:
        before = float(np.mean([each.loss_before for each in facts]))
        after = float(np.mean([each.loss_after for each in facts]))
        show(
            title(f"{name} for each of {len(facts):,} labels, fitted on {facts[0].rows:,} rows"),
            f"mean loss over the labels, on these rows: {before:.4f} before, {after:.4f} after",
            f"wrote {target.path}",
        )


def apply_to_labels(model: "LabelPredictor", source: Source, logits: bool) -> dict[str, Contents]:
    """Return every part of a file with calibrated probabilities or logits of each label; the rest stays as it was."""
    made = {}
    takes = model.calibrators_[0].inputs
    for part, label_rows in read_label_rows(source).items():
        contents = label_rows.contents
        if contents.inputs != takes:
            raise BadFile(
                f"{arg.name_of(source.files[0])}: holds {contents.inputs}, but the model was fitted on {takes}"
            )
        model.check_names(contents.class_names)
        fields: dict[str, Any] = {"logits": None, "probabilities": None}
        if logits:
            fields["logits"] = model.transform(label_rows.scores)
        else:
            fields["probabilities"] = model.predict_proba(label_rows.scores)
        made[part] = replace(contents, **fields, class_names=contents.class_names or model.label_names_)
    return made


def show_label_scores(name: str, label_rows: LabelRows, as_json: bool) -> None:
    """Print the scores of each label, and their mean."""
    contents = label_rows.contents
    labels = label_rows.labels()
    make = Predictions if contents.inputs == "logits" else Predictions.from_probabilities
    extras: dict[str, Any] = {"weights": contents.weights, "counts": contents.counts}
    cards = {}
    for number, label in enumerate(label_rows.names):
        cards[label] = label_scorecard(make(label_rows.scores[:, [number]], labels[:, number], **extras))
    scores = LabelScorecards(cards)
    if as_json:
        show_json(scores.to_dict())
    else:
        show(title(name), *str(scores).splitlines())
