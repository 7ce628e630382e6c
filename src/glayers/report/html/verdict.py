"""What was measured -> the sentence a reader came for, and what it rests on."""

from dataclasses import dataclass

from glayers.calibrators import AutoCalibrator
from glayers.metrics.old import PairedDifferences
from glayers.report.html.compared import Compared
from glayers.report.html.measuring import Measured, Measurements
from glayers.report.html.numbers import metric_text, p_text, percent


@dataclass(frozen=True)
class Verdict:
    """One sentence, the sentences that support it, and the method it speaks of, "" where none was fitted."""

    sentence: str
    support: list[str]
    method: str


def judge(compared: Compared, found: Measurements, differences: PairedDifferences | None) -> Verdict:
    """Say how far the model was off and whether calibration mended it, as far as these rows can tell."""
    before = found.before
    sentence, support = _said_before(before), [_ks_support(before, "a calibrated model")]
    if differences is None:
        return Verdict(f"{_capital(sentence)}.", support, "")
    name, why = _chosen(compared)
    after = found.named(name)
    support[0] += f" After {name}: {_ks_support(after, 'it')}"
    support += [_capital(differences.between(metric, name, before.name).sentence()) + "." for metric in _COMPARED]
    return Verdict(f"{_capital(sentence)}; {_said_after(before, after)}.", [*support, why], name)


_COMPARED = ("nll", "accuracy")


def _chosen(compared: Compared) -> tuple[str, str]:
    """Return the method to speak of, and why that: the recommended one, or else that of the lowest NLL."""
    for name, calibrator in compared.calibrators.items():
        if isinstance(calibrator, AutoCalibrator):
            return name, f"{_capital(name)} chose and mixed its families on the calibration rows alone."
    fitted = list(compared.calibrators)
    best = min(fitted, key=lambda name: compared.scorecards[name].nll)
    if len(fitted) == 1:
        return best, f"{_capital(best)} is the one method that was fitted."
    among = f"of {len(fitted)} methods on these very rows, which flatters it a little"
    return best, f"{_capital(best)} has the lowest NLL {among}."


def _said_before(method: Measured) -> str:
    if not method.test.rejected:
        return f"calibrated, as far as {method.card.rows:,} rows can tell: {_says(method)}"
    return f"{_direction(method)}: {_says(method)}"


def _said_after(before: Measured, after: Measured) -> str:
    said = f"after calibration by {after.name} it {_says(after)}"
    if not after.test.rejected:
        return f"{said}, within sampling error"
    when = "still" if before.test.rejected and _direction(before) == _direction(after) else "now"
    return f"{said}, {when} {_direction(after)} beyond sampling error"


def _direction(method: Measured) -> str:
    """Over- or underconfident where the means differ by two standard errors; else only some confidences are off."""
    gap = method.card.confidence - method.card.accuracy
    if abs(gap) <= 2 * method.intervals["accuracy"].standard_error:
        return "right on average but not at every confidence"
    return "overconfident" if gap > 0 else "underconfident"


def _says(method: Measured) -> str:
    return f"says {percent(method.card.confidence)}, right {percent(method.card.accuracy)}"


def _ks_support(method: Measured, who: str) -> str:
    test = method.test
    error, bound = metric_text("ks", test.value), metric_text("ks", test.bound)
    return (
        f"KS error {error} ({p_text(test.p_value)}); {who} would show at most {bound} in "
        f"{100 * test.level:g} % of samples like this" + (" if it were calibrated." if who == "it" else ".")
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
