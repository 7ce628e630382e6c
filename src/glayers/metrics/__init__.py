"""Predictions -> numbers: metrics of calibration and accuracy, their intervals, and tests.

Every metric takes an array of probabilities with labels, `Predictions`, or (for one event) `Confidences`. Each module
lists its public names in its own `__all__`.
"""

import types

from glayers.metrics.scores import *  # first, as METRICS has the order of the definitions

# isort: split
from glayers.metrics.bootstrap import *
from glayers.metrics.calibration_errors import *
from glayers.metrics.calibration_tests import *
from glayers.metrics.events import *
from glayers.metrics.metric import *
from glayers.metrics.outcomes import *
from glayers.metrics.scorecard import *
from glayers.metrics.several_labels import *
from glayers.metrics.streaming import *

__all__ = sorted(name for name, value in vars().items() if name[0] != "_" and not isinstance(value, types.ModuleType))
