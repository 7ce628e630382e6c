"""Held-out logits and labels -> a fitted map that calibrates probabilities. All calibrators by name.

Importing, loading and predicting never need torch; some methods need it to fit. A new calibrator is one module with
`methods` on its class, and an import and entries in `__all__` and `_OURS` here. Other packages register theirs.
"""

import inspect
import os
import re
from dataclasses import replace
from typing import Any

from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import Estimator
from glayers.calibrators.g_layers import GLayers, PaperGLayers
from glayers.calibrators.groups import GroupCalibrator, GroupCorrection
from glayers.calibrators.label_curve import LabelCurve
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
from glayers.calibrators.outside import OutsideCalibrator, is_outside
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import TemperatureScaling
from glayers.checks import items_of
from glayers.errors import GlayersError, listed, shown
from glayers.registry import Registry
from glayers.serving import artifact
from glayers.serving.artifact import file_name

__all__ = ["CALIBRATORS", "AutoCalibrator", "BetaCalibration", "Calibrator", "DirichletCalibration", "Fitted"]
__all__ += ["GLayers", "GroupCalibrator", "HistogramBinning", "IsotonicCalibration", "LabelCurve"]
__all__ += ["MatrixScaling", "Method", "MultiLabelCalibrator", "OrderPreserving", "OutsideCalibrator"]
__all__ += ["PaperGLayers", "PlattScaling", "QuadraticScaling", "SharedGLayers", "TemperatureScaling"]
__all__ += ["VectorScaling", "load", "register"]


_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def register(kind: type[Calibrator]) -> type[Calibrator]:
    """Make a calibrator of your own known by the names of its `methods`; also as a decorator of the class.

    Then `compare`, `CalibratedClassifier`, the command line and `load` know it, in this process. A package that
    declares its class as an entry point of the group `glayers.calibrators` needs no call.

    Parameters
    ----------
    kind : type
        A subclass of `Calibrator` with `methods`, each a `Method`.

    Returns
    -------
    type
        The class.

    Examples
    --------
    >>> import numpy as np
    >>> from glayers import CALIBRATORS, Calibrator, Fitted, Method, register
    >>> from glayers.maps import Chain, Scale
    >>> @register
    ... class HalfLogits(Calibrator):
    ...     methods = (Method("half-logits", "Divides all logits by two", "ranking"),)
    ...
    ...     def _fit(self, given):
    ...         return Fitted(Chain((Scale(np.array(0.5)),)), "half logits")
    >>> logits = [[2.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 1.0]]
    >>> CALIBRATORS["half-logits"]().fit(logits, [2, 0, 1]).transform([[4.0, 0.0, 2.0]])
    array([[2., 0., 1.]])
    >>> del CALIBRATORS["half-logits"]  # take it out again
    """
    if not (isinstance(kind, type) and issubclass(kind, Calibrator)):
        raise GlayersError(f"register takes a class derived from glayers.Calibrator; got {shown(kind)}")
    if inspect.isabstract(kind):
        raise GlayersError(f"{kind.__name__} cannot be made: write its {listed(sorted(kind.__abstractmethods__))}")
    methods = items_of(kind.methods)
    if not methods or not all(isinstance(method, Method) and _NAME.fullmatch(str(method.name)) for method in methods):
        raise GlayersError(
            f"{kind.__name__} needs a name of lower-case words joined by hyphens: methods = (Method('my-method', 'What "
            f"it does'),); got {shown(kind.methods)}"
        )
    for method in kind.methods:
        known = CALIBRATORS.known(method.name)
        if known is None or known.kind is kind:
            continue
        if known.kind in _OURS or file_name(known.kind) != file_name(kind):
            raise GlayersError(f"{method.name!r} is the name of {known.kind.__name__} already")
    for method in kind.methods:
        CALIBRATORS.add(method.name, replace(method, kind=kind))
    return kind


# Methods by name, in the order in which tables list them.
CALIBRATORS: Registry[Method] = Registry("glayers.calibrators", register)
_OURS = (
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
)
# What a file may hold besides, which is no method.
_OTHERS = (GroupCorrection, GroupCalibrator, LabelCurve, MultiLabelCalibrator)
for _kind in _OURS:
    register(_kind)


def class_of(name: str) -> type[Estimator] | None:
    """Return the class of a name that a file has; a saved file may name no others."""
    for kind in (*_OURS, *_OTHERS):
        if kind.__name__ == name:
            return kind
    return next((method.kind for method in CALIBRATORS.values() if file_name(method.kind) == name), None)


def calibrator_of(given: object) -> Calibrator:
    """Return a calibrator as it is, or a new one: by its name, or from an object of another library.

    >>> calibrator_of("vector")
    VectorScaling()
    """
    if isinstance(given, str) and given in CALIBRATORS:
        given = CALIBRATORS[given]
    if isinstance(given, Method):
        given = given()
    if is_outside(given):
        given = OutsideCalibrator(given)
    if not isinstance(given, Calibrator):
        raise GlayersError(
            f"a calibrator must be one of glayers, such as TemperatureScaling(), an object with fit and predict_proba, "
            f"a function of probabilities, or one of the names {', '.join(CALIBRATORS)}; got {shown(given)}"
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
    return artifact.load(path, class_of)
