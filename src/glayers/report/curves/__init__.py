"""Predictions -> the numbers behind a figure: small frozen records that a plot draws and a page writes as JSON."""

from glayers.report.curves.classes import CalibrationMap as CalibrationMap
from glayers.report.curves.classes import ClassGaps as ClassGaps
from glayers.report.curves.classes import ClassMatrix as ClassMatrix
from glayers.report.curves.classes import calibration_map as calibration_map
from glayers.report.curves.classes import class_gaps as class_gaps
from glayers.report.curves.classes import class_matrix as class_matrix
from glayers.report.curves.ks import KsCurves as KsCurves
from glayers.report.curves.ks import ks_curves as ks_curves
from glayers.report.curves.reliability import Reliability as Reliability
from glayers.report.curves.reliability import ReliabilityCurve as ReliabilityCurve
from glayers.report.curves.reliability import corp_reliability as corp_reliability
from glayers.report.curves.reliability import reliability as reliability
from glayers.report.curves.reliability import smooth_reliability as smooth_reliability
