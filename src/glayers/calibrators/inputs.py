"""What a caller passes, logits, probabilities or a confidence -> `Predictions` to fit on, and numbers for the map.

A calibrator is told once what its inputs are, in the setting `inputs`, and a file keeps it.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from glayers.checks import check_choice, check_probabilities
from glayers.errors import BadPredictions
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import two_classes
from glayers.serving.predictor import CHECKS, class_names_of


@dataclass(eq=False, repr=False)
class Inputs:
    """The setting of every calibrator: what the numbers are that it is fitted on and applied to."""

    _: KW_ONLY
    inputs: Literal["logits", "probabilities", "confidence"] = "logits"


def checked_rows(inputs: str, values: Any, labels: Any, weights: Any, groups: Any) -> Predictions:
    """Return the checked input of `fit`."""
    check_choice(inputs, CHECKS, "inputs")
    if inputs == "confidence":
        return two_classes(inputs, Confidences(values, labels, weights, groups))
    names = class_names_of(values)
    if inputs == "probabilities":
        return Predictions._of_probabilities(check_probabilities(values), labels, weights, groups, names)
    return Predictions(values, labels, weights, groups, names)


def rows_to_compare(
    calibrator: Any, values: Any, labels: Any, groups: Any, weights: Any = None
) -> tuple[Predictions, bool]:
    """Return new rows as predictions of a fitted calibrator, and whether they have labels.

    Without labels, each label is a possible class.
    """
    inputs, n_logits = calibrator.inputs, calibrator.n_features_in_
    if isinstance(values, Predictions | Confidences):
        if any(each is not None for each in (labels, groups, weights)):
            raise BadPredictions("Predictions have their own labels, weights and groups; leave labels= and groups= out")
        given, labelled = two_classes(inputs, values).repeated(), True
        calibrator._check_names(given.class_names)
    else:
        calibrator._check_names(class_names_of(values))
        rows, labelled = CHECKS[inputs](values), labels is not None
        truth = labels if labelled else rows.argmax(axis=1)
        if inputs == "logits":
            given = Predictions._trusted(rows, truth, weights, groups, None, None)
        else:
            given = Predictions._of_probabilities(rows, truth, weights, groups)
    if given.logits.shape[1] != n_logits:
        raise BadPredictions(f"fitted on {n_logits} logits per row; got {given.logits.shape[1]}")
    return given, labelled
