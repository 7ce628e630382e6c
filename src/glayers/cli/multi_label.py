"""Files whose rows may have several labels -> calibrators and scores of each label, for `fit`, `apply` and `score`.

Such a file is `.npz` or `.json`, with labels (rows, labels) of 0 and 1. New rows without labels may have any format.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from glayers.arrays import to_floats
from glayers.checks import check_counts, check_groups, check_label_matrix, two_dimensional
from glayers.cli import arguments as arg
from glayers.cli.runtime import flag, show, show_json, title
from glayers.errors import BadFile, shown
from glayers.metrics.multi_label import LabelScorecards, label_scorecard
from glayers.predictions import Predictions
from glayers.predictions.contents import Contents
from glayers.predictions.formats import read_contents

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.serving.predictor import LabelPredictor

SeveralLabels = Annotated[
    bool, flag("--several-labels", text="Rows may have several labels: labels is a matrix of 0 and 1.")
]


def fit_each_label(
    contents: Contents, name: str, method: "Calibrator", target: arg.Output, as_json: bool, quiet: bool
) -> None:
    """Fit one calibrator per label, write them to one file, and say so."""
    from glayers.calibrators import MultiLabelCalibrator

    inputs, scores, labels = _scores(contents)
    weights, groups = contents.weights, contents.groups
    if contents.counts is not None:
        check_groups(np.zeros(len(scores)) if groups is None else groups, len(scores))
        rows = np.repeat(np.arange(len(scores)), check_counts(contents.counts, len(scores)))
        scores, labels = scores[rows], check_label_matrix(labels, scores.shape)[rows]
        groups = None if groups is None else groups[rows]
    several = MultiLabelCalibrator(method.set_params(inputs=inputs)).fit(scores, labels, weights, groups)
    several.label_names_ = contents.class_names
    target.check()
    several.save(target.path)
    facts = [each.diagnostics_ for each in several.calibrators_]
    if as_json:
        names = contents.class_names or [str(number) for number in range(len(facts))]
        by_label = {label: each.to_dict() for label, each in zip(names, facts, strict=True)}
        show_json({"method": name, "output": str(target.path), "labels": by_label})
    if as_json or quiet:
        return
    before, after = (float(np.mean([getattr(each, loss) for each in facts])) for loss in ("loss_before", "loss_after"))
    show(
        title(f"{name} for each of {len(facts):,} labels, fitted on {facts[0].rows:,} rows"),
        f"mean loss over the labels, on these rows: {before:.4f} before, {after:.4f} after",
        f"wrote {target.path}",
    )


def read_and_apply(model: "LabelPredictor", path: Path, logits: bool, *reading: Any) -> dict[str, Contents]:
    """Return every part of a file with calibrated probabilities or logits of each label; the rest stays as it was.

    `reading` are the options labels, part, probabilities and columns.
    """
    labels, part, probabilities, columns = reading
    takes = model.calibrators_[0].inputs
    # A .npy file does not say what it holds, but the model does.
    told = probabilities or (takes == "probabilities" and path.suffix.lower() == ".npy")
    made = {}
    for name, contents in arg.read_wanted(read_contents, path, labels, part, told, columns).items():
        inputs, scores, _ = _scores(contents, labelled=False)
        if inputs != takes:
            raise BadFile(f"{arg.name_of(path)}: holds {inputs}, but the model was fitted on {takes}")
        model.check_names(contents.class_names)
        after = (model.transform if logits else model.predict_proba)(scores)
        own, other = ("logits", "probabilities") if logits else ("probabilities", "logits")
        fields: dict[str, Any] = {own: after, other: None}
        made[name] = replace(contents, **fields, class_names=contents.class_names or model.label_names_)
    return made


def show_label_scores(name: str, contents: Contents, as_json: bool) -> None:
    """Print the scores of each label, and their mean."""
    inputs, scores, labels = _scores(contents)
    truth = check_label_matrix(labels, scores.shape)
    make = Predictions if inputs == "logits" else Predictions.from_probabilities
    extras: dict[str, Any] = {"weights": contents.weights, "counts": contents.counts}
    each = (label_scorecard(make(scores[:, [i]], truth[:, i], **extras)) for i in range(scores.shape[1]))
    names = contents.class_names or map(str, range(scores.shape[1]))
    cards = LabelScorecards(dict(zip(names, each, strict=True)))
    if as_json:
        show_json(cards.to_dict())
    else:
        show(title(name), *str(cards).splitlines())


def _scores(contents: Contents, labelled: bool = True) -> tuple[str, Any, Any]:
    """Return what the scores are, the scores (rows, labels), and the labels of the same shape, or None."""
    if contents.confidence is not None:
        raise BadFile("holds a confidence per row; several labels need logits or probabilities of each label")
    if contents.labels is None and labelled:
        raise BadFile(contents.no_labels)
    inputs = "probabilities" if contents.logits is None else "logits"
    scores = two_dimensional(to_floats(getattr(contents, inputs), inputs), inputs)
    names = contents.class_names
    if names is not None and not len(names) == len(set(names)) == scores.shape[1]:
        raise BadFile(f"class_names must be {scores.shape[1]} different names, one per label; got {shown(names)}")
    return inputs, scores, contents.labels
