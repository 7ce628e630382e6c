"""Probabilities and labels -> numbers: pure functions, NumPy only, weights everywhere."""

from glayers.metrics.old.all_classes import ClasswiseTest, classwise_ks_test, mean_class_ks_test
from glayers.metrics.old.bins import (
    class_ece,
    classwise_ece,
    debiased_ece,
    debiased_rms_calibration_error,
    ece,
    ece_of,
    mce,
    rms_calibration_error,
)
from glayers.metrics.old.bootstrap import Interval
from glayers.metrics.old.canonical import skce, skce_test
from glayers.metrics.old.consistency import consistency_test
from glayers.metrics.old.corrections import adjust
from glayers.metrics.old.decomposition import (
    ConsistencyBand,
    Decomposition,
    classwise_corp,
    corp,
    corp_band,
    top_class_corp,
)
from glayers.metrics.old.inference import (
    class_ks_test,
    ece_test,
    ks_test,
    ks_test_of,
    ks_within_top_test,
    subset_ks_test,
)
from glayers.metrics.old.intervals import Intervals, intervals, intervals_from_logits
from glayers.metrics.old.ks import (
    class_ks,
    classwise_ks,
    ks_error,
    ks_error_of,
    ks_within_top,
    mean_top_ks,
    subset_ks,
)
from glayers.metrics.old.pairs import Difference, PairedDifferences, paired_differences, paired_differences_from_logits
from glayers.metrics.old.ranks import MethodRanks, rank_methods
from glayers.metrics.old.scorecard import Scorecard, scorecard, scorecard_from_logits
from glayers.metrics.old.scores import (
    ProperScores,
    accuracy,
    brier,
    brier_sum,
    nll,
    nll_from_logits,
    proper_scores,
    top_k_accuracy,
)
from glayers.metrics.old.smooth import smooth_ece, smooth_ece_of
from glayers.metrics.old.verdicts import CalibrationTest

__all__ = [
    "CalibrationTest",
    "ClasswiseTest",
    "ConsistencyBand",
    "Decomposition",
    "Difference",
    "Interval",
    "Intervals",
    "MethodRanks",
    "PairedDifferences",
    "ProperScores",
    "Scorecard",
    "accuracy",
    "adjust",
    "brier",
    "brier_sum",
    "class_ece",
    "class_ks",
    "class_ks_test",
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
    "ece_of",
    "ece_test",
    "intervals",
    "intervals_from_logits",
    "ks_error",
    "ks_error_of",
    "ks_test",
    "ks_test_of",
    "ks_within_top",
    "ks_within_top_test",
    "mce",
    "mean_class_ks_test",
    "mean_top_ks",
    "nll",
    "nll_from_logits",
    "paired_differences",
    "paired_differences_from_logits",
    "proper_scores",
    "rank_methods",
    "rms_calibration_error",
    "scorecard",
    "scorecard_from_logits",
    "skce",
    "skce_test",
    "smooth_ece",
    "smooth_ece_of",
    "subset_ks",
    "subset_ks_test",
    "top_class_corp",
    "top_k_accuracy",
]
