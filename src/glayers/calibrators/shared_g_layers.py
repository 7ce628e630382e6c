"""Held-out logits and labels -> a class-wise part for what differs between classes, then one correction they all share.

Symmetry counters the overfitting that the paper leaves open: the same small function acts on every class, so that
rows x classes observations determine its 35 coefficients. Behind g-layers it is fitted to their out-of-fold
predictions, which show their errors on new rows. With the other parts it is fitted together.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from glayers.activations import log_softmax
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.temperature import tempered
from glayers.checks import check_choice, whole_number
from glayers.fitting.evidence import SMALL_MODEL, fit_parts
from glayers.fitting.folds import assign_folds, format_gain, paired_gain
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, n_learned
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map

_PARTS = {
    "g-layers": ("shared", "context"),
    "matrix": (*SMALL_MODEL, "matrix"),
    "vector": SMALL_MODEL,
    "temperature": ("shared", "context"),
}


@dataclass(eq=False, repr=False)
class SharedGLayers(Calibrator):
    """A class-wise part, then a correction shared by all classes.

    Parameters
    ----------
    class_part : {"g-layers", "matrix", "vector", "temperature"}
        The class-wise part. "g-layers" needs torch to fit; the others are faster and do not.
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
        How much the fit lowers the cross-validated log loss of temperature scaling, or of g-layers, and the standard
        error of that gain.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> fitted = SharedGLayers("temperature").fit(calibration.logits, calibration.labels)
    >>> bool(fitted.gain_ > 2 * fitted.gain_error_)
    True
    """

    methods = (Method("shared-g-layers", "G-layers, then a shared correction", "nothing", "glayers", torch="required"),)
    _kept: ClassVar[tuple[str, ...]] = ("gain_", "gain_error_")

    gain_: ClassVar[float]
    gain_error_: ClassVar[float]

    class_part: Literal["g-layers", "matrix", "vector", "temperature"] = "g-layers"
    _: KW_ONLY
    n_folds: int = 5
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        check_choice(self.class_part, tuple(_PARTS), "class_part")
        n_folds = whole_number(self.n_folds, "n_folds", least=2)
        seed = drawn_seed(self.random_state)
        folds = assign_folds(len(given), given.groups, n_folds, seed)
        if self.class_part == "g-layers":
            part = GLayers(n_folds=n_folds, random_state=seed, progress=False)._fit(given)
            before = np.asarray(log_softmax(part.out_of_fold))
            found = fit_parts(given.with_logits(before), 1.0, _PARTS["g-layers"], folds)
        else:
            factor = fit_with_prior(given.logits, given.labels, given.weights).factor
            part = Fitted(Chain(()), self.class_part)
            before = np.asarray(apply_map(tempered(factor), given.logits))
            found = fit_parts(given, factor, _PARTS[self.class_part], folds)
        chain = part.map + found.map
        own = np.arange(len(given)), given.labels
        gain, error = paired_gain(-before[own], -found.out_of_fold[own], given.weights, given.groups)
        change = f"lowers the cross-validated log loss by {format_gain(gain, error)}"
        if gain < 0:
            change = f"raises the cross-validated log loss by {format_gain(-gain, error)}"
        fitted = Fitted.of_parts(
            found,
            f"shared g-layers after {self.class_part}",
            f"the shared correction {change}; {self.class_part}: {part.reason}",
            converged=part.converged and found.converged,
            notes=part.notes,
            attributes={"gain_": gain, "gain_error_": error},
        )
        return replace(fitted, map=chain, n_parameters=n_learned(chain), posterior=None)
