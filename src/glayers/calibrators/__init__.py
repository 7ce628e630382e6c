"""Held-out logits and labels -> a fitted map that calibrates probabilities. All calibrators by name.

Importing, loading and predicting never need torch; some methods need it to fit. A new calibrator is one module with
`methods` on its class, and an import and entries in `__all__` and `_ALL` here.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Method
from glayers.calibrators.estimator import Estimator
from glayers.calibrators.g_layers import GLayers, PaperGLayers
from glayers.calibrators.groups import GroupCalibrator, GroupCorrection
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.multi_label import MultiLabelCalibrator
from glayers.calibrators.one_versus_rest import (
    BetaCalibration,
    HistogramBinning,
    IsotonicCalibration,
    PlattScaling,
    QuadraticScaling,
)
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import TemperatureScaling
from glayers.errors import GlayersError, shown
from glayers.serving import artifact

__all__ = ["CALIBRATORS", "AutoCalibrator", "BetaCalibration", "Calibrator", "DirichletCalibration"]
__all__ += ["GLayers", "GroupCalibrator", "HistogramBinning", "IsotonicCalibration"]
__all__ += ["MatrixScaling", "MultiLabelCalibrator", "OrderPreserving", "PaperGLayers", "PlattScaling"]
__all__ += ["QuadraticScaling", "SharedGLayers", "TemperatureScaling"]
__all__ += ["VectorScaling", "load"]

# In the order in which tables list their methods. A saved file may name these classes alone.
_ALL: tuple[type[Estimator], ...] = (
    AutoCalibrator,
    TemperatureScaling,
    VectorScaling,
    MatrixScaling,
    DirichletCalibration,
    GLayers,
    PaperGLayers,
    SharedGLayers,
    OrderPreserving,
    PlattScaling,
    QuadraticScaling,
    BetaCalibration,
    IsotonicCalibration,
    HistogramBinning,
    GroupCorrection,
    GroupCalibrator,
    MultiLabelCalibrator,
)
# Methods by name, and how to make an unfitted calibrator of each. Call an entry of CALIBRATORS with further settings if
# needed: CALIBRATORS["g-layers"](n_layers=1).
METHODS: dict[str, Method] = {method.name: method for kind in _ALL for method in kind.methods}
CALIBRATORS: dict[str, Callable[..., Any]] = {
    method.name: partial(kind, **method.settings) for kind in _ALL for method in kind.methods
}


def calibrator_of(given: object) -> Calibrator:
    """Return a calibrator as it is, or a new one by its name.

    >>> calibrator_of("vector")
    VectorScaling()
    """
    if isinstance(given, str) and given in CALIBRATORS:
        given = CALIBRATORS[given]()
    if not isinstance(given, Calibrator):
        raise GlayersError(
            f"calibrator must be a calibrator, such as TemperatureScaling(), or one of the names "
            f"{', '.join(CALIBRATORS)}; got {shown(given)}"
        )
    return given


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
    return artifact.load(path, {kind.__name__: kind for kind in _ALL}.get)
