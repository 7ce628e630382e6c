"""Held-out logits and labels -> a fitted map that calibrates probabilities. All calibrators by name.

Importing, loading and predicting never need torch; some methods need it to fit. A new calibrator is one module with
`methods` on its class, an import and entries in `__all__` and `_MODULES` here, and one in the `__all__` of the package.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from glayers.serving import artifact

if TYPE_CHECKING:
    from glayers.calibrators.auto import AutoCalibrator
    from glayers.calibrators.base import Calibrator, Method
    from glayers.calibrators.binary import BetaCalibration, PlattScaling
    from glayers.calibrators.g_layers import GLayers, PaperGLayers
    from glayers.calibrators.groups import GroupCalibrator
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

    METHODS: dict[str, Method]
    CALIBRATORS: dict[str, Callable[..., Calibrator]]
    CLASSES: dict[str, type[Calibrator]]

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
    "PaperGLayers",
    "PlattScaling",
    "ScalingBinning",
    "SharedGLayers",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
    "load",
]

# The module of each class, in the order in which tables list their methods. A saved file may name these classes alone.
_MODULES = {
    "AutoCalibrator": "auto",
    "TemperatureScaling": "temperature",
    "EnsembleTemperatureScaling": "temperature",
    "VectorScaling": "linear",
    "MatrixScaling": "linear",
    "DirichletCalibration": "linear",
    "GLayers": "g_layers",
    "PaperGLayers": "g_layers",
    "SharedGLayers": "shared_g_layers",
    "OrderPreserving": "order_preserving",
    "PlattScaling": "binary",
    "BetaCalibration": "binary",
    "IsotonicCalibration": "nonparametric",
    "HistogramBinning": "nonparametric",
    "BayesianBinning": "nonparametric",
    "ScalingBinning": "nonparametric",
    "SplineCalibration": "nonparametric",
    "GroupCorrection": "groups",
    "GroupCalibrator": "groups",
    "MultiLabelCalibrator": "multi_label",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: a server loads one calibrator, and no other.
    if name in ("CALIBRATORS", "CLASSES", "METHODS"):
        globals().update(_tables())
        return globals()[name]
    module = "base" if name == "Calibrator" else _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def _tables() -> dict[str, Any]:
    """Return all calibrators by the name of the class, all methods, and how to make an unfitted calibrator of each.

    Call an entry of CALIBRATORS with further settings if needed: CALIBRATORS["g-layers"](n_layers=1).
    """
    classes = {name: __getattr__(name) for name in _MODULES}
    classes = {name: kind for name, kind in classes.items() if not kind.of_parts}
    methods = {}
    makers = {}
    for kind in classes.values():
        for method in kind.methods:
            methods[method.name] = method
            makers[method.name] = partial(kind, **method.settings) if method.settings else kind
    return {"CLASSES": classes, "METHODS": methods, "CALIBRATORS": makers}


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
    return artifact.load(path, lambda name: __getattr__(name) if name in _MODULES else None)
