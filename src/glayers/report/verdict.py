"""Tests and data -> what page, terminal and model card say of a model: each statement has one source.

`verdict` alone decides whether a model is called calibrated. "Overconfident" stands only where the tests of the
confidence reject, and no second test decides about it. `findings` are problems of the data that no score shows.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Ints
from glayers.errors import listed
from glayers.metrics import METRICS, CalibrationTest, OmnibusTest, Scorecard
from glayers.metrics.events import Rows, Scored
from glayers.predictions import Confidences, Predictions
from glayers.report.curves import LEVEL, PredictedGaps, class_names, predicted_gaps
from glayers.text_tables import capital

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.comparison import Comparison

Tone: TypeAlias = Literal["", "good", "fair", "bad"]

FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
BOTH_SETS = "Rows in both sets"


class Verdict(NamedTuple):
    """Whether a model is calibrated: in a few words, in a sentence, and how good that is.

    The tone is "good" only if no test finds an error and the rows would have shown one that matters.
    """

    answer: str
    sentence: str
    tone: Tone


class Finding(NamedTuple):
    """A problem that the scores do not show: what it is about, what was found, and what to do about it."""

    subject: str
    found: str
    advice: str


def verdict(test: OmnibusTest, card: Scorecard, gaps: PredictedGaps | None = None) -> Verdict:
    """Say what the tests of a model and, where they are known, the gaps of its predicted classes mean together."""
    if test.verdict == "as calibrated as the rows allow":
        return Verdict("Nearly", test.finding, "fair")
    word = direction(test, card)
    if word.endswith("confident"):
        word += f" by {100 * abs(card['confidence'] - card['accuracy']):.1f} points"
    if word:
        return Verdict("Not calibrated", word, "bad")
    if gaps is not None and gaps.off:
        names = listed([gaps.names[c] for c in gaps.off], at_most=3)
        return Verdict("Not in every class", f"not calibrated where it predicts {names}", "fair")
    if test.rejecting:
        return Verdict("Not below the top class", test.finding, "fair")
    if test.undecided:
        return Verdict(f"{capital(test.verdict)} to tell", test.finding, "fair")
    return Verdict("Yes", test.finding, "good")


def class_gaps(rows: Rows | Scored) -> PredictedGaps | None:
    """Return the gaps of the predicted classes; rows of confidences have no classes."""
    return predicted_gaps(rows) if isinstance(rows, Rows) else None


def direction(test: OmnibusTest, card: Scorecard) -> str:
    """Return in which direction the confidence is off, or "" if no test of the confidence rejects.

    The mean gap is where the sum behind the KS error ends, so it is significant if it exceeds the bound of that test.
    """
    if test.verdict != "not calibrated" or not {"ks", "ece"} & set(test.rejecting):
        return ""
    gap = card["confidence"] - card["accuracy"]
    if not abs(gap) > test.tests["ks"].bound:
        return "correct on average but miscalibrated at some confidences"
    return "overconfident" if gap > 0 else "underconfident"


def confidence_sentence(test: OmnibusTest, card: Scorecard) -> str:
    """Return mean confidence and accuracy, and in which direction they are off, if they are."""
    confidence, accuracy = (METRICS[name].format(card[name]) for name in ("confidence", "accuracy"))
    means = f"mean confidence {confidence}, accuracy {accuracy}"
    word = direction(test, card)
    if not word:
        return means
    return f"{word} ({means})"


def ks_sentence(test: CalibrationTest) -> str:
    """Return a KS error, and what chance alone would make of it.

    >>> ks_sentence(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 %; that of a calibrated model exceeds 1.50 % in 5 % of samples'
    """
    value = METRICS["ks"].format(test.value)
    if test.too_few_groups:
        return f"KS {value}; too few groups to tell whether this is sampling error"
    bound = METRICS["ks"].format(test.bound)
    return f"KS {value}; that of a calibrated model exceeds {bound} in {100 - 100 * test.level:.3g} % of samples"


def findings(compared: "Comparison", calibration: Predictions | Confidences | None) -> list[Finding]:
    """Look for rows in both sets, shift between the sets, missing and rare classes, and groups."""
    test = compared.test
    found: list[Finding] = []
    if isinstance(test, Predictions) and isinstance(calibration, Predictions):
        same = rows_in_both(calibration, test)
        if same > 0:
            words = f"{same:,} of {len(test):,} test rows are also calibration rows: scores on them are too optimistic"
            found.append(Finding(BOTH_SETS, words, "Leave these rows out of one of the two sets"))
    if compared.calibrators:
        found += _shift(compared.calibrators[compared.recommended], test)
    if isinstance(test, Predictions):
        names = class_names(test.class_names, test.n_classes)
        for fitted in list(compared.calibrators.values())[:1]:
            found += _rare_classes("calibration", np.array(fitted.diagnostics_.labels_per_class), names)
        found += _rare_classes("test", test.label_counts(), names)
    if test.groups is not None:
        n_groups = len(np.unique(test.groups))
        words = f"test rows come in {n_groups:,} groups; bands of figures treat rows as independent and are too narrow"
        found.append(Finding("Groups", words, "Read the tests and intervals, which account for groups"))
    return found


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row."""
    known = set(_keys(calibration))
    return sum(key in known for key in _keys(test))


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _shift(calibrator: "Calibrator", test: Predictions | Confidences) -> list[Finding]:
    """Compare the test rows with the calibration rows that a calibrator remembers."""
    from glayers.shift import shift_test  # slow to import

    found = shift_test(calibrator, test, level=LEVEL)
    if not found.shifted:
        return []
    advice = "Fit again on rows like those the model will see"
    changed = {name for name, p_value in found.p_values.items() if p_value <= 1 - LEVEL}
    if {"labels"} <= changed <= {"labels", "predicted classes"}:
        advice = "Adapt the calibrator to the new class frequencies with glayers adapt"
    return [Finding("Calibration and test rows", str(found), advice)]


def _rare_classes(part: str, counts: Ints, names: list[str]) -> list[Finding]:
    missing = [names[c] for c in np.flatnonzero(counts == 0)]
    few = [names[c] for c in np.flatnonzero((counts > 0) & (counts < FEW))]
    words = []
    if missing:
        words.append(f"no {part} row has the label {listed(missing, at_most=5)}")
    if few:
        rare = f"fewer than {FEW} {part} rows have the label {listed(few, at_most=5)}"
        words.append(f"{rare}: estimates for such classes are imprecise")
    if not words:
        return []
    return [Finding(f"Rare classes, {part} rows", "; ".join(words), "Collect more labelled rows of these classes")]
