"""Measurements -> the summary at the top of the page: one sentence, and the evidence for it."""

from dataclasses import dataclass

from glayers.calibrators import AutoCalibrator
from glayers.metrics import PairedDifferences
from glayers.report.html.measuring import Compared, Measured, Measurements
from glayers.report.tables import ks_test_sentence, mean_sentence

_COMPARED = ("nll", "accuracy")


@dataclass(frozen=True)
class Summary:
    """One sentence, the sentences that support it, and the method it describes, "" if none was fitted."""

    sentence: str
    support: list[str]
    method: str


def summarise(compared: Compared, found: Measurements, differences: PairedDifferences | None) -> Summary:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    before = found.before
    if differences is None:
        return Summary(f"{_before(before)}.", [f"{ks_test_sentence(before.test)}."], "")
    name, why = _chosen(compared)
    after = found.methods[name]
    support = [f"{ks_test_sentence(before.test)}.", f"After {name}, {ks_test_sentence(after.test)}."]
    support += [_capital(differences.between(metric, name, before.name).sentence()) + "." for metric in _COMPARED]
    return Summary(f"{_before(before)}. {_after(before, after)}.", [*support, why], name)


def _chosen(compared: Compared) -> tuple[str, str]:
    """Return the method to describe, and the reason: auto, or else the method with the lowest NLL."""
    fitted = compared.calibrators
    for name, calibrator in fitted.items():
        if isinstance(calibrator, AutoCalibrator):
            return name, f"This summary describes {name}, which chose its families on the calibration rows alone."
    best = min(fitted, key=lambda name: compared.scorecards[name]["nll"])
    if len(fitted) == 1:
        return best, f"This summary describes {best}, the only method that was fitted."
    among = f"which has the lowest NLL of {len(fitted)} methods on these test rows; its scores are slightly optimistic"
    return best, f"This summary describes {best}, {among}."


def _before(method: Measured) -> str:
    found = _direction(method) if method.test.rejected else f"no miscalibration found in {method.card.rows:,} rows"
    return f"{_capital(found)}: {mean_sentence(method.card)}"


def _after(before: Measured, after: Measured) -> str:
    means = f"After calibration with {after.name}: {mean_sentence(after.card)}"
    if not after.test.rejected:
        return f"{means}, no miscalibration beyond sampling error"
    when = "still" if before.test.rejected and _direction(before) == _direction(after) else "now"
    return f"{means}, {when} {_direction(after)}"


def _direction(method: Measured) -> str:
    """Over- or underconfident if the means differ by two standard errors, else miscalibrated around the mean."""
    gap = method.card["confidence"] - method.card["accuracy"]
    if abs(gap) <= 2 * method.intervals["accuracy"].standard_error:
        return "correct on average but miscalibrated at some confidences"
    return "overconfident" if gap > 0 else "underconfident"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
