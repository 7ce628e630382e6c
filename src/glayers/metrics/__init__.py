"""Probabilities and labels -> numbers: pure functions, NumPy only, weights everywhere."""

from glayers.metrics.bins import (
    class_ece,
    classwise_ece,
    debiased_ece,
    debiased_rms_calibration_error,
    ece,
    ece_of,
    mce,
    rms_calibration_error,
)
from glayers.metrics.ks import (
    class_ks,
    classwise_ks,
    ks_error,
    ks_error_of,
    ks_within_top,
    mean_top_ks,
    subset_ks,
)
from glayers.metrics.scorecard import Scorecard, scorecard, scorecard_from_logits
from glayers.metrics.scores import (
    ProperScores,
    accuracy,
    brier,
    brier_sum,
    nll,
    nll_from_logits,
    proper_scores,
    top_k_accuracy,
)
from glayers.metrics.smooth import smooth_ece, smooth_ece_of

__all__ = [
    "ProperScores",
    "Scorecard",
    "accuracy",
    "brier",
    "brier_sum",
    "class_ece",
    "class_ks",
    "classwise_ece",
    "classwise_ks",
    "debiased_ece",
    "debiased_rms_calibration_error",
    "ece",
    "ece_of",
    "ks_error",
    "ks_error_of",
    "ks_within_top",
    "mce",
    "mean_top_ks",
    "nll",
    "nll_from_logits",
    "proper_scores",
    "rms_calibration_error",
    "scorecard",
    "scorecard_from_logits",
    "smooth_ece",
    "smooth_ece_of",
    "subset_ks",
    "top_k_accuracy",
]
