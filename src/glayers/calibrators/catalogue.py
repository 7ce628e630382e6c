"""A name -> a calibrator: those to choose from, and those a file may hold."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from glayers.calibrators.artifact_file import problems_of, read_artifact
from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.scaling import TemperatureScaling
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.errors import BadFile

# Call one for an unfitted calibrator; further settings may be passed: CALIBRATORS["g-layers"](random_state=0).
CALIBRATORS: dict[str, Callable[..., Calibrator]] = {
    "auto": AutoCalibrator,
    "temperature": TemperatureScaling,
    "ensemble-temperature": EnsembleTemperatureScaling,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "matrix-odir": partial(MatrixScaling, "odir"),
    "dirichlet": DirichletCalibration,
    "g-layers": GLayers,
    "g-layers-paper": partial(GLayers, recipe="paper"),
    "shared-g-layers": SharedGLayers,
    "order-general": partial(OrderPreserving, "general"),
    "order-invariant": partial(OrderPreserving, "invariant"),
    "order-diagonal": partial(OrderPreserving, "diagonal"),
    "platt": PlattScaling,
    "beta": BetaCalibration,
    "isotonic": IsotonicCalibration,
    "histogram": HistogramBinning,
    "histogram-top": partial(HistogramBinning, target="top"),
    "bbq": BayesianBinning,
    "scaling-binning": ScalingBinning,
    "spline": SplineCalibration,
    "spline-classes": partial(SplineCalibration, target="classes"),
}

# What a file may name. Nothing happens in a constructor, so that asking each for its class costs nothing.
CLASSES: dict[str, type[Calibrator]] = {
    type(made).__name__: type(made) for made in (make() for make in CALIBRATORS.values())
}


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Return the calibrator that `save` wrote: it predicts the same bytes, without torch.

    >>> import tempfile
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(Path(folder) / "t.safetensors")
    ...     load(Path(folder) / "t.safetensors").temperature_ == fitted.temperature_
    True
    """
    where = Path(path)
    with problems_of(where):
        artifact = read_artifact(where)
        if artifact.calibrator not in CLASSES:
            raise BadFile(f"unknown calibrator {artifact.calibrator!r:.60}; known are {', '.join(sorted(CLASSES))}")
        return CLASSES[artifact.calibrator].from_artifact(artifact)
