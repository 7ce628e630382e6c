"""A fitted calibrator and test rows -> the section of a model card about calibration, as Markdown."""

from typing import Any

import numpy as np

from glayers.calibrators.base import Calibrator, check_calibrator
from glayers.decisions.threshold import threshold
from glayers.metrics import Metric, calibration_test, intervals, scorecard
from glayers.metrics.events import check_any
from glayers.predictions.predictions import Confidences, Predictions
from glayers.report.verdict import class_gaps, verdict
from glayers.shift import shift_test
from glayers.text_tables import capital, markdown_table, plural, two_digits

__all__ = ["model_card"]

_GAP = Metric.of_function(np.subtract, name="mean confidence minus accuracy", per_row=True)


def model_card(
    calibrator: Calibrator,
    test: Predictions | Confidences,
    *,
    accuracy: float = 0.95,
    level: float = 0.95,
    random_state: int = 0,
) -> str:
    """Return the section of a model card that says how far the probabilities can be trusted.

    Parameters
    ----------
    calibrator
        A fitted or loaded calibrator.
    test
        Uncalibrated rows with labels that neither the model nor the calibrator was fitted on.
    accuracy
        The accuracy of the threshold from which on answers can be used.
    level
        The level of the intervals and of the tests. The threshold holds with a certainty of 90 %, as by default.
    random_state
        The seed of all draws.

    Returns
    -------
    str
        Markdown: what was calibrated and how, accuracy and gap with intervals, the calibration test with the smallest
        error that these rows would have shown, a threshold with a guaranteed accuracy, limits, versions.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> card = model_card(TemperatureScaling().fit_predictions(calibration), test.take(slice(500)))
    >>> print(card.splitlines()[2])
    Calibrated by temperature scaling on 5,000 rows of 10 classes. The numbers below are from 500 other rows.
    """
    check_calibrator(calibrator)
    calibrated = calibrator.apply(test)
    facts = calibrator.diagnostics_
    fitted_on = f"{plural(facts.rows, 'row')} of {plural(len(calibrator.classes_), 'class')}"
    effective = calibrator.calibration_rows_.rows
    if effective < 0.99 * facts.rows:
        fitted_on += f" ({effective:,.0f} effective rows)"
    history = [f"Calibrated by {facts.method} on {fitted_on}."]
    if calibrator.adaptation_ is not None:
        history.append(f"Then {calibrator.adaptation_.summary}.")
    history.append(f"The numbers below are from {plural(len(test), 'other row')}.")
    tested = calibration_test(
        calibrated, calibrator=calibrator, before=test, level=level, random_state=random_state, progress=False
    )
    said = verdict(tested, scorecard(calibrated), class_gaps(check_any(calibrated)))
    found = [f"**Verdict.** {capital(said.sentence)}."]
    if tested.detectable > 0:  # not a number if there are too few groups
        shown = two_digits(100 * tested.detectable)
        found.append(f"These rows would have shown an error of {shown} points in 80 % of samples.")
    before, after = (_numbers(rows, level, random_state) for rows in (test, calibrated))
    cells = [(f"{100 * level:g} % intervals", "uncalibrated", "calibrated")]
    cells += zip(before, before.values(), after.values(), strict=True)
    limits = ["The numbers hold for rows like the calibration and test rows."]
    limits += [f"Test rows: {shift_test(calibrator, test, level=level)}.", *facts.notes]
    versions = ", ".join(f"{name} {number}" for name, number in calibrator.versions_.items())
    paragraphs = [
        "## Calibration",
        " ".join(history),
        markdown_table(cells),
        " ".join(found),
        f"**Threshold.** {threshold(calibrated, accuracy=accuracy)}",
        "**Limits.**",
        "\n".join(f"- {limit}" for limit in limits),
        f"**Versions.** Fitted with {versions}.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _numbers(given: Any, level: float, seed: int) -> dict[str, str]:
    """Return the numbers of the table, each with its interval."""
    metrics = ["accuracy", "confidence", _GAP]
    found = intervals(given, metrics=metrics, level=level, random_state=seed, progress=False)
    numbers = {label: f"{value} ({ends.strip()})" for label, value, ends, _ in found.printed()}
    value, low, high = (f"{100 * number:+.2f}" for number in found[_GAP.name][:3])
    numbers[_GAP.name] = f"{value} points ({low} to {high})"
    return numbers
