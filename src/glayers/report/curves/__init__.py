"""Predictions -> the numbers behind a figure: small frozen records that a plot draws and a page writes as JSON."""

from glayers.report.curves.classes import *
from glayers.report.curves.events import *
