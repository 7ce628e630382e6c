"""Predictions -> numbers: metrics of calibration and accuracy, their intervals, and tests.

Every metric takes an array of probabilities with labels, `Predictions`, or (for one event) `Confidences`.
"""

from glayers.metrics.binned import (
    classwise_ece,
    debiased_ece,
    debiased_rms_calibration_error,
    ece,
    ece_per_class,
    mce,
    rms_calibration_error,
)
from glayers.metrics.bootstrap import Interval
from glayers.metrics.calibration_tests import CalibrationTest, consistency_test, ece_test, ks_test
from glayers.metrics.class_tests import ClasswiseTest, classwise_ks_test, ks_test_per_class
from glayers.metrics.corp import ConsistencyBand, Decomposition, classwise_corp, corp, corp_band
from glayers.metrics.differences import Difference, PairedDifferences, adjust, paired_differences
from glayers.metrics.events import Event, label, one_of, rank, top, within_top
from glayers.metrics.intervals import Intervals, intervals
from glayers.metrics.ks import classwise_ks, ks, ks_per_class, mean_top_ks
from glayers.metrics.method_ranks import MethodRanks, rank_methods
from glayers.metrics.metric import Metric
from glayers.metrics.registry import METRICS
from glayers.metrics.scorecard import Scorecard, scorecard
from glayers.metrics.scores import accuracy, brier, brier_sum, mean_confidence, nll, spherical, top_k_accuracy
from glayers.metrics.skce import skce, skce_test
from glayers.metrics.smooth import smooth_ece

__all__ = [
    "METRICS",
    "CalibrationTest",
    "ClasswiseTest",
    "ConsistencyBand",
    "Decomposition",
    "Difference",
    "Event",
    "Interval",
    "Intervals",
    "MethodRanks",
    "Metric",
    "PairedDifferences",
    "Scorecard",
    "accuracy",
    "adjust",
    "brier",
    "brier_sum",
    "classwise_corp",
    "classwise_ece",
    "classwise_ks",
    "classwise_ks_test",
    "consistency_test",
    "corp",
    "corp_band",
    "debiased_ece",
    "debiased_rms_calibration_error",
    "ece",
    "ece_per_class",
    "ece_test",
    "intervals",
    "ks",
    "ks_per_class",
    "ks_test",
    "ks_test_per_class",
    "label",
    "mce",
    "mean_confidence",
    "mean_top_ks",
    "nll",
    "one_of",
    "paired_differences",
    "rank",
    "rank_methods",
    "rms_calibration_error",
    "scorecard",
    "skce",
    "skce_test",
    "smooth_ece",
    "spherical",
    "top",
    "top_k_accuracy",
    "within_top",
]
