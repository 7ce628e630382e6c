"""A fitted calibrator and test rows -> the section of a model card about calibration, as Markdown."""

from typing import Any

from glayers.calibrators import Calibrator
from glayers.calibrators.base import check_calibrator
from glayers.decisions.costs import mean_intervals
from glayers.decisions.threshold import threshold
from glayers.metrics import calibration_test, intervals, scorecard
from glayers.metrics.bootstrap import Bootstrap
from glayers.metrics.events import check_any
from glayers.predictions.predictions import Confidences, Predictions
from glayers.report.verdict import class_gaps, verdict
from glayers.shift import shift_test
from glayers.text_tables import capital, markdown_table, plural, two_digits

__all__ = ["model_card"]


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
    tested = calibration_test(
        calibrated, calibrator=calibrator, before=test, level=level, random_state=random_state, progress=False
    )
    said = verdict(tested, scorecard(calibrated), class_gaps(check_any(calibrated)))
    power = ""
    if tested.detectable > 0:  # not a number if there are too few groups
        power = (
            f" These rows would have shown an error of {two_digits(100 * tested.detectable)} points in 80 % of samples."
        )
    columns = [_numbers(rows, level, random_state) for rows in (test, calibrated)]
    cells = [(f"{100 * level:g} % intervals", "uncalibrated", "calibrated")]
    cells += [(name, columns[0][name], columns[1][name]) for name in columns[0]]
    shift = shift_test(calibrator, test, level=level)
    limits = ["The numbers hold for rows like the calibration and test rows.", f"Test rows: {shift}.", *facts.notes]
    versions = ", ".join(f"{name} {number}" for name, number in calibrator.versions_.items())
    paragraphs = [
        "## Calibration",
        f"Calibrated by {facts.method} on {fitted_on}. The numbers below are from {plural(len(test), 'other row')}.",
        markdown_table(cells),
        f"**Verdict.** {capital(said.sentence)}.{power}",
        f"**Threshold.** {threshold(calibrated, accuracy=accuracy)}",
        "**Limits.**",
        "\n".join(f"- {limit}" for limit in limits),
        f"**Versions.** Fitted with {versions}.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _numbers(given: Any, level: float, seed: int) -> dict[str, str]:
    """Return the numbers of the table, each with its interval."""
    rows = check_any(given, strict=True)
    found = intervals(rows, metrics=["accuracy", "confidence"], level=level, random_state=seed, progress=False)
    numbers = {label: f"{value} ({ends.strip()})" for label, value, ends, _ in found.printed()}
    settings = Bootstrap(level=level, random_state=seed, progress=False)
    gap = mean_intervals(rows, {"gap": rows.top.scores - rows.top.hits}, settings)["gap"]
    value, low, high = (f"{100 * number:+.2f}" for number in gap[:3])
    numbers["mean confidence minus accuracy"] = f"{value} points ({low} to {high})"
    return numbers
