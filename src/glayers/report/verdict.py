"""Tests and data -> what page, terminal and model card say of a model: each statement has one source.

`verdict` alone decides whether a model is called calibrated. "Overconfident" stands only where the tests of the
confidence reject, and no second test decides about it. `findings` are problems of the data that no score shows.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Bools, Ints
from glayers.errors import WITHOUT_GROUPS, listed
from glayers.metrics import METRICS, CalibrationTest, OmnibusTest, Scorecard
from glayers.metrics.calibration_tests import TOLERANCE
from glayers.metrics.events import Rows, Scored
from glayers.predictions import Confidences, MultiLabelPredictions, Predictions
from glayers.report.curves import LEVEL, PredictedGaps, class_names, predicted_gaps
from glayers.text_tables import capital, plural, shortened

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.comparison import Comparison

Tone: TypeAlias = Literal["", "good", "fair", "bad"]

_NAMED = 3  # more classes than these are counted, not named
FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
CLASS_TOLERANCE = 0.1  # single classes have few rows: gaps of ten points should show
_FEW_SHARED = 1e-3  # of the test rows: no score shows them
_CONFIDENCE = "confidence"  # the name of the top class's event in tests
OF_CONFIDENCE = {"ks", "ece"}  # the tests of the top probability
BOTH_SETS = "Rows in both sets"
CLASS_FREQUENCIES = "Class frequencies changed"
FIT_AGAIN = "Fit again on rows like those the model will see."


class Verdict(NamedTuple):
    """Whether a model is calibrated: in a few words, in a sentence, how good that is, and what not to rely on.

    The tone is "good" only if no test finds an error and the rows would have shown one that matters.
    """

    answer: str
    sentence: str
    tone: Tone
    limit: str = ""


class Finding(NamedTuple):
    """A problem that the scores do not show: what it is about, what was found, and what to do about it."""

    subject: str
    found: str
    advice: str


def verdict(test: OmnibusTest, card: Scorecard, gaps: PredictedGaps | None = None) -> Verdict:
    """Say what the tests of a model and, where they are known, the gaps of its predicted classes mean together."""
    below = Verdict("Only the top probability", test.finding, "fair", "Rely on the top probability only.")
    if not test.detectable <= TOLERANCE:  # nobody can tell about the top probability
        limit = "Do not rely on the probabilities of single classes."
        below = Verdict("Not all probabilities", test.finding, "fair", limit)
    top_is_off = bool(OF_CONFIDENCE & set(test.rejecting))
    if test.verdict == "as calibrated as the rows allow":
        if top_is_off:
            words = f"{_direction(test, card)}, as expected from so few calibration rows"
            return Verdict("Nearly", words, "fair")
        return below
    if top_is_off:
        return Verdict("Not calibrated", _direction(test, card), "bad")
    if gaps is not None and gaps.off:
        names = [shortened(gaps.names[c]) for c in gaps.off]
        predicted = listed(names, at_most=3)
        off = f"the model is not calibrated where it predicts {predicted}"
        if test.verdict == "calibrated":
            off = f"{test.finding} of all classes together, but {off}"
        tone: Tone = "bad" if np.abs(gaps.gap[gaps.off]).max() > CLASS_TOLERANCE else "fair"
        limit = f"Do not trust the confidence of predictions of {predicted}."
        return Verdict(f"Not where it predicts {listed(names, at_most=1)}", off, tone, limit)
    if test.rejecting:
        return below
    if test.undecided:
        return Verdict(f"{capital(test.verdict)} to tell", test.finding, "fair")
    return Verdict("Yes", test.finding, "good")


def class_gaps(rows: Rows | Scored) -> PredictedGaps | None:
    """Return the gaps of the predicted classes; rows of confidences have no classes."""
    return predicted_gaps(rows) if isinstance(rows, Rows) else None


def _direction(test: OmnibusTest, card: Scorecard) -> str:
    """Say in which direction the confidence, or the probability of another event, is off, and how far.

    The mean gap is where the sum behind the KS error ends, so it is significant if it exceeds the bound of that test.
    """
    gap = card["confidence"] - card["accuracy"]
    size = f"{100 * abs(gap):.1f} points"
    subject = "the model"
    too_high, too_low = f"overconfident by {size}", f"underconfident by {size}"
    mixed = "over- or underconfident at some confidence levels"
    if test.event != _CONFIDENCE:
        subject = f"the probability of {test.event}"
        too_high, too_low = f"{size} too high on average", f"{size} too low on average"
        mixed = "too high or too low at some values"
    if not abs(gap) > test.tests["ks"].bound:
        return f"{subject} is right on average, but {mixed}"
    return f"{subject} is {too_high if gap > 0 else too_low}"


def ks_sentence(test: CalibrationTest) -> str:
    """Return a KS error, and what chance alone would make of it.

    >>> ks_sentence(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 %; a calibrated model would exceed 1.50 % in 5 % of samples'
    """
    value = METRICS["ks"].format(test.value)
    if test.too_few_groups:
        return f"KS {value}; too few groups to tell whether this is sampling error"
    bound = METRICS["ks"].format(test.bound)
    return f"KS {value}; a calibrated model would exceed {bound} in {100 * (1 - test.level):.3g} % of samples"


def findings(compared: "Comparison", calibration: Predictions | Confidences | None) -> list[Finding]:
    """Look for rows in both sets, shift between the sets, missing and rare classes, and groups."""
    test = compared.test
    found: list[Finding] = []
    if isinstance(test, Predictions) and isinstance(calibration, Predictions):
        same = rows_in_both(calibration, test)
        if same > 0:
            words = f"{same:,} of {len(test):,} test rows are also calibration rows, which makes the scores too good"
            found.append(Finding(BOTH_SETS, words, "Leave these rows out of one of the two sets."))
    if compared.calibrators:
        found += _shift(compared.calibrators[compared.recommended], test)
    if isinstance(test, Predictions):
        counts = {"test": test.label_counts()}
        names = class_names(test.class_names, test.n_classes)
        if isinstance(test, MultiLabelPredictions):
            counts = {"test": np.bincount(test.columns, test.labels, test.n_labels).astype(np.int64)}
            names = class_names(test.names, test.n_labels)
        for fitted in list(compared.calibrators.values())[:1]:
            counts = {"calibration": np.array(fitted.diagnostics_.labels_per_class)} | counts
        found += _rare_classes(counts, names)
    if test.groups is not None and not isinstance(test, MultiLabelPredictions):  # where each row is a group
        n_groups = len(np.unique(test.groups))
        words = f"the test rows are in {n_groups:,} groups, and rows of one group count as dependent"
        advice = f"{WITHOUT_GROUPS}." if n_groups < FEW else ""
        found.append(Finding("Groups", words, advice))
    return found


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row, if these matter.

    Where rows repeat within both sets too, as rounded logits do, repeats between the sets are no sign of a mistake.
    One logit of a binary network, in float32, may be the same for two inputs by chance.
    """
    parts = [_keys(part) for part in (calibration, test)]
    repeated = [1 - len(set(keys)) / len(keys) for keys in parts]
    known = set(parts[0])
    same = sum(key in known for key in parts[1])
    by_chance = max(4 * min(repeated), _FEW_SHARED) * len(test)
    return 0 if same <= by_chance else same


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _shift(calibrator: "Calibrator", test: Predictions | Confidences) -> list[Finding]:
    """Compare the test rows with the calibration rows that a calibrator remembers."""
    from glayers.shift import shift_test  # slow to import

    found = shift_test(calibrator, test, level=LEVEL)
    most = found.most_changed
    if not most:
        return []
    change = found.changes[most].replace("of these", "of the test rows")
    if most == "labels":
        return [Finding(CLASS_FREQUENCIES, change, "Adapt the calibrator to them: glayers adapt.")]
    words = f"the largest difference is in {most.replace(' less ', ' minus ')} ({change})"
    return [Finding("The test rows differ from the calibration rows", words, FIT_AGAIN)]


def _rare_classes(counts: dict[str, Ints], names: list[str]) -> list[Finding]:
    """Name the classes that have no rows, or few."""
    wanted = np.any([rows < FEW for rows in counts.values()], axis=0)
    advice = f"Collect labelled rows of {few_or_count(names, wanted)}."
    found = []
    for kind, words, least, limit in (("missing", "no", 0, 1), ("rare", f"fewer than {FEW}", 1, FEW)):
        lacking = {part: (least <= rows) & (rows < limit) for part, rows in counts.items()}
        said = [f"{words} {part} rows of {few_or_count(names, some)}" for part, some in lacking.items() if some.any()]
        if said:
            found.append(Finding(f"{capital(kind)} classes", "; ".join(said), advice))
    return found


def few_or_count(names: list[str], which: Bools) -> str:
    """Name a few classes, or count many."""
    some = [names[c] for c in np.flatnonzero(which)]
    if len(some) == len(names):
        return "every class"
    if len(some) > _NAMED:
        return f"{len(some):,} of {plural(len(names), 'class')}"
    return ", ".join(some)
