"""Held-out logits and labels -> g-layers for what differs between classes, then one correction that they all share.

Symmetry counters the overfitting that the paper leaves open: the same small function acts on every class, so that
rows x classes observations determine its 35 coefficients. It is fitted to the out-of-fold predictions of the g-layers,
which show their errors on new rows.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from glayers.activations import log_softmax
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.g_layers import GLayers
from glayers.checks import whole_number
from glayers.fitting.evidence import fit_parts
from glayers.fitting.folds import assign_folds, format_gain, paired_gain
from glayers.fitting.parts import SHARED
from glayers.predictions import Predictions


@dataclass(eq=False, repr=False)
class SharedGLayers(Calibrator):
    """G-layers, then a correction shared by all classes.

    Parameters
    ----------
    n_folds : int
        Folds of the cross-validation.
    random_state : int or None
        Seed of the folds and of g-layers.

    Attributes
    ----------
    map_ : Chain
        The fitted map from logits to log-probabilities.
    diagnostics_ : Diagnostics
        Convergence, losses before and after, number of parameters, seconds.
    out_of_fold_ : array (n, classes)
        Log-probabilities of every row by fits that had not seen it.
    gain_, gain_error_ : float
        How much the fit lowers the cross-validated log loss of g-layers, and the standard error of that gain.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> fitted = SharedGLayers().fit(calibration.logits[:1000], calibration.labels[:1000])
    >>> bool(fitted.diagnostics_.loss_after < 0.6 * fitted.diagnostics_.loss_before)
    True
    """

    methods = (Method("shared-g-layers", "G-layers, then a shared correction", "nothing", "glayers", torch="required"),)
    _kept: ClassVar[tuple[str, ...]] = ("gain_", "gain_error_")

    gain_: ClassVar[float]
    gain_error_: ClassVar[float]

    _: KW_ONLY
    n_folds: int = 5
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        n_folds = whole_number(self.n_folds, "n_folds", least=2)
        seed = drawn_seed(self.random_state)
        folds = assign_folds(len(given), given.groups, n_folds, seed)
        layers = GLayers(n_folds=n_folds, random_state=seed, progress=False)._fit(given)
        before = np.asarray(log_softmax(layers.out_of_fold))
        found = fit_parts(given.with_logits(before), 1.0, SHARED, folds)
        own = np.arange(len(given)), given.labels
        gain, error = paired_gain(-before[own], -found.out_of_fold[own], given.weights, given.groups)
        change = f"lowers the cross-validated log loss by {format_gain(gain, error)}"
        if gain < 0:
            change = f"raises the cross-validated log loss by {format_gain(-gain, error)}"
        fitted = Fitted.of_parts(
            found,
            "shared g-layers",
            f"the shared correction {change}; g-layers: {layers.reason}",
            converged=layers.converged and found.converged,
            notes=layers.notes,
            attributes={"gain_": gain, "gain_error_": error},
        )
        n_parameters = (layers.n_parameters or 0) + len(found.posterior.point)
        return replace(fitted, map=layers.map + found.map, n_parameters=n_parameters, posterior=None)
