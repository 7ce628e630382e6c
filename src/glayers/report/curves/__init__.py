"""Predictions -> the numbers behind a figure: small frozen results that a plot draws and a page writes as JSON."""

from glayers.report.curves.classes import ClassGaps, ClassMatrix, class_gaps, class_matrix
from glayers.report.curves.events import event_name, event_scores
from glayers.report.curves.ks import KsCurves, ks_curves
from glayers.report.curves.mapping import CalibrationMap, calibration_map
from glayers.report.curves.records import SeedCurve, seed_curves
from glayers.report.curves.reliability import (
    CorpReliability,
    Reliability,
    SmoothReliability,
    corp_reliability,
    reliability,
    smooth_reliability,
)

__all__ = [
    "CalibrationMap",
    "ClassGaps",
    "ClassMatrix",
    "CorpReliability",
    "KsCurves",
    "Reliability",
    "SeedCurve",
    "SmoothReliability",
    "calibration_map",
    "class_gaps",
    "class_matrix",
    "corp_reliability",
    "event_name",
    "event_scores",
    "ks_curves",
    "reliability",
    "seed_curves",
    "smooth_reliability",
]
