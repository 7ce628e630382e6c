"""Probabilities and labels -> every metric at once, as one small result that prints, converts and compares."""

from dataclasses import asdict, dataclass, fields, replace

from glayers.arrays import Array
from glayers.logits import check_logits, probabilities_of
from glayers.metrics.old.bins import (
    classwise_ece,
    debiased_ece,
    debiased_rms_calibration_error,
    ece,
    mce,
    rms_calibration_error,
)
from glayers.metrics.old.checks import check, top
from glayers.metrics.old.ks import classwise_ks, ks_error, mean_top_ks
from glayers.metrics.old.scores import accuracy, brier, brier_sum, mean_log_loss, nll, top_k_accuracy
from glayers.metrics.old.smooth import smooth_ece
from glayers.probabilities import check_probability_rows

_TOP = 5
_RANKS = 10


@dataclass(frozen=True)
class Scorecard:
    """What a set of predictions is worth: how often right, how good as probabilities, how far from calibrated.

    Accuracy, confidence and calibration errors are fractions here and percentages in print; `mean_top_ks` is over the
    ten highest ranks, or all of them where there are fewer classes, `top_5_accuracy` likewise.
    """

    rows: int
    classes: int
    accuracy: float
    top_5_accuracy: float
    confidence: float
    nll: float
    brier: float
    brier_sum: float
    ks: float
    mean_top_ks: float
    classwise_ks: float
    ece: float
    ece_equal_mass: float
    debiased_ece: float
    smooth_ece: float
    classwise_ece: float
    mce: float
    rms_calibration_error: float
    debiased_rms_calibration_error: float

    def __getitem__(self, metric: str) -> float:
        value: float = getattr(self, metric)
        return value

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by name, as JSON would have them."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return a Markdown table, one metric a line."""
        lines = ["| metric | value |", "|---|---:|"]
        return "\n".join(lines + [f"| {name} | {value} |" for name, value in self.printed().items()])

    def printed(self) -> dict[str, str]:
        """Return each metric's words and its value as people read it: percent where it is a share."""
        words = _WORDS | {
            "top_5_accuracy": f"accuracy, top {min(_TOP, self.classes)}",
            "mean_top_ks": f"KS, mean over top {min(_RANKS, self.classes)} ranks",
        }
        return {words[field.name]: _format(field.name, getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        printed = self.printed()
        width = max(map(len, printed))
        return "\n".join(f"{name:<{width}}  {value:>10}" for name, value in printed.items())


def scorecard(probabilities: object, labels: object, weights: object = None) -> Scorecard:
    """Score probabilities by every metric, after checking that they are probabilities.

    >>> print(scorecard([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]).to_markdown().splitlines()[4])
    | accuracy | 50.00 % |
    """
    given = check(probabilities, labels, weights)
    check_probability_rows(given.probabilities)
    n_rows, n_classes = given.probabilities.shape
    card = (given.probabilities, given.labels, weights)
    event = top(given)
    return Scorecard(
        rows=n_rows,
        classes=n_classes,
        accuracy=accuracy(*card),
        top_5_accuracy=top_k_accuracy(*card, k=min(_TOP, n_classes)),
        confidence=float((event.weights * event.scores).sum()),
        nll=nll(*card),
        brier=brier(*card),
        brier_sum=brier_sum(*card),
        ks=ks_error(*card),
        mean_top_ks=mean_top_ks(*card, ranks=min(_RANKS, n_classes)),
        classwise_ks=classwise_ks(*card),
        ece=ece(*card),
        ece_equal_mass=ece(*card, binning="equal_mass"),
        debiased_ece=debiased_ece(*card),
        smooth_ece=smooth_ece(*card),
        classwise_ece=classwise_ece(*card),
        mce=mce(*card),
        rms_calibration_error=rms_calibration_error(*card),
        debiased_rms_calibration_error=debiased_rms_calibration_error(*card),
    )


def scorecard_from_logits(logits: object, labels: object, weights: object = None) -> Scorecard:
    """Score softmax(logits); the NLL comes from the logits themselves, so that no probability rounds to zero.

    >>> scorecard_from_logits([[0.0, 1e4], [1e4, 0.0]], [0, 0]).nll
    5000.0
    """
    return score_checked_logits(check_logits(logits), labels, weights)


def score_checked_logits(logits: Array, labels: object, weights: object) -> Scorecard:
    """Score logits that were checked before, such as those of `Predictions`: they may look like probabilities."""
    exact = mean_log_loss(logits, labels, weights)
    return replace(scorecard(probabilities_of(logits), labels, weights), nll=exact)


_WORDS = {
    "rows": "rows",
    "classes": "classes",
    "accuracy": "accuracy",
    "confidence": "mean confidence",
    "nll": "NLL",
    "brier": "Brier, mean over classes",
    "brier_sum": "Brier, sum over classes",
    "ks": "KS",
    "classwise_ks": "KS, class-wise",
    "ece": "ECE, 15 equal-width bins",
    "ece_equal_mass": "ECE, 15 equal-mass bins",
    "debiased_ece": "ECE, debiased, equal-mass",
    "smooth_ece": "ECE, smooth",
    "classwise_ece": "ECE, class-wise",
    "mce": "MCE",
    "rms_calibration_error": "RMS calibration error, equal-width",
    "debiased_rms_calibration_error": "RMS calibration error, debiased, equal-mass",
}
_PLAIN = {"nll": "{:.4f}", "brier": "{:.5f}", "brier_sum": "{:.4f}", "rows": "{:,}", "classes": "{:,}"}


def _format(name: str, value: float) -> str:
    return _PLAIN[name].format(value) if name in _PLAIN else f"{100 * value:.2f} %"
