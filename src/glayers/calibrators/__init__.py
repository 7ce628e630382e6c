"""Held-out logits and labels -> a fitted map that calibrates probabilities. All calibrators by name.

Importing, loading and predicting never need torch; some methods need it to fit. A new calibrator is one module with
`methods` on its class, an import and an entry in `__all__` here, and one in the `__all__` of the package.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Method
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.groups import GroupCalibrator, GroupCorrection
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.multi_label import MultiLabelCalibrator
from glayers.calibrators.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling
from glayers.serving import artifact

__all__ = [
    "CALIBRATORS",
    "AutoCalibrator",
    "BayesianBinning",
    "BetaCalibration",
    "Calibrator",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "GLayers",
    "GroupCalibrator",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "MultiLabelCalibrator",
    "OrderPreserving",
    "PlattScaling",
    "ScalingBinning",
    "SharedGLayers",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
    "load",
]

# In the order in which tables list their methods.
_CLASSES: tuple[type[Calibrator], ...] = (
    AutoCalibrator,
    TemperatureScaling,
    EnsembleTemperatureScaling,
    VectorScaling,
    MatrixScaling,
    DirichletCalibration,
    GLayers,
    SharedGLayers,
    OrderPreserving,
    PlattScaling,
    BetaCalibration,
    IsotonicCalibration,
    HistogramBinning,
    BayesianBinning,
    ScalingBinning,
    SplineCalibration,
)
CLASSES: dict[str, type[Calibrator]] = {each.__name__: each for each in _CLASSES}
CLASSES["GroupCorrection"] = GroupCorrection  # part of `GroupCalibrator`, and no method of its own
# A saved file may name these, and no others.
_IN_FILES = {**CLASSES, "GroupCalibrator": GroupCalibrator, "MultiLabelCalibrator": MultiLabelCalibrator}
METHODS: dict[str, Method] = {method.name: method for each in _CLASSES for method in each.methods}
# Call an entry for an unfitted calibrator, with further settings if needed: CALIBRATORS["g-layers"](n_layers=1).
CALIBRATORS: dict[str, Callable[..., Calibrator]] = {
    method.name: partial(each, **method.settings) if method.settings else each
    for each in _CLASSES
    for method in each.methods
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator that `save` wrote. It predicts the same bytes, without torch.

    Loading and predicting import NumPy and safetensors, but neither SciPy nor scikit-learn.

    Parameters
    ----------
    path : str or path-like
        The `.safetensors` file.

    Returns
    -------
    Calibrator
        The fitted calibrator, of the class that was saved.

    Raises
    ------
    BadFile
        If the file is missing, damaged, edited or not written by glayers. Nothing in a file is ever executed.

    Examples
    --------
    >>> import tempfile
    >>> from glayers import TemperatureScaling
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/t.safetensors")
    ...     load(f"{folder}/t.safetensors").temperature_ == fitted.temperature_
    True
    """
    return artifact.load(path, _IN_FILES)
