"""Held-out logits and labels -> a class-wise part for what differs between classes, then one correction they all share.

Symmetry counters the overfitting that the paper leaves open: the same small function acts on every class, so that
rows x classes observations determine its 35 coefficients. Behind g-layers it is fitted to their out-of-fold
predictions, which show their errors on new rows. With the other parts it is fitted together.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Ints
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.temperature import tempered
from glayers.checks import check_switch, whole_number
from glayers.errors import GlayersError
from glayers.fitting.fitted_parts import FittedParts, fit_parts
from glayers.fitting.folds import assign_folds, format_gain, paired_gain
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, KeepOrder
from glayers.maps.layouts import n_learned
from glayers.maps.order import in_order_of
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map

_PARTS = {
    "g-layers": ("shared",),
    "matrix": ("shared", "scale", "shift", "matrix"),
    "vector": ("shared", "scale", "shift"),
    "temperature": ("shared",),
}


@dataclass(eq=False, repr=False)
class SharedGLayers(Calibrator):
    """A class-wise part, then a correction shared by all classes.

    Parameters
    ----------
    class_part : {"g-layers", "matrix", "vector", "temperature"}
        The class-wise part. "g-layers" needs torch to fit; the others are faster and do not.
    keep_order : bool
        Keep the order of the classes in every row, and so accuracy and every top-k accuracy. Only logits that differ in
        their last digits may become ties.
    n_folds : int
        Folds of the cross-validation.
    random_state : int or None
        Seed of the folds and of g-layers.
    settings : dict, optional
        Settings of `GLayers`, such as ``{"max_epochs": 20}``; the other class-wise parts take none.

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
    keep_order: bool = False
    n_folds: int = 5
    random_state: int | None = 0
    settings: dict[str, Any] | None = None

    def _fit(self, given: Predictions) -> Fitted:
        n_folds = whole_number(self.n_folds, "n_folds", least=2)
        settings = {"n_folds": n_folds, **self._part_settings()}
        seed = drawn_seed(self.random_state)
        keep_order = check_switch(self.keep_order, "keep_order")
        folds = assign_folds(len(given), given.groups, n_folds, seed)
        factor = fit_with_prior(given.logits, given.labels, given.weights).factor
        if self.class_part == "g-layers":
            part = fit_layers(given, seed, settings)
            found = behind_layers(given, part, folds, "log")
        else:
            plain = np.asarray(apply_map(tempered(factor), given.logits))
            part = Fitted(Chain(()), self.class_part, out_of_fold=plain)
            found = fit_parts(given, factor, _PARTS[self.class_part], folds)
        chain, held_out = part.map + found.map, found.out_of_fold
        if keep_order:
            kept = KeepOrder.of(chain, factor)
            chain = Chain((kept,))
            held_out = np.asarray(log_softmax(in_order_of(given.logits.astype(np.float64), held_out, kept.slope)))
        own = np.arange(len(given)), given.labels
        gain, error = paired_gain(-np.asarray(part.out_of_fold)[own], -held_out[own], given.weights, given.groups)
        change = f"lowers the cross-validated log loss by {format_gain(gain, error)}"
        if gain < 0:
            change = f"raises the cross-validated log loss by {format_gain(-gain, error)}"
        return Fitted(
            chain,
            f"shared g-layers after {self.class_part}",
            converged=part.converged and found.fit.converged,
            reason=f"the shared correction {change}; {self.class_part}: {part.reason}",
            iterations=found.fit.iterations,
            n_parameters=n_learned(chain),
            out_of_fold=held_out,
            notes=part.notes,
            attributes={"gain_": gain, "gain_error_": error},
        )

    def _part_settings(self) -> dict[str, Any]:
        """Return the settings for the class-wise part, checked."""
        if not isinstance(self.class_part, str) or self.class_part not in _PARTS:
            raise GlayersError(f"class_part must be one of {sorted(_PARTS)}; got {self.class_part!r}")
        own = {} if self.settings is None else self.settings
        if not isinstance(own, dict):
            raise GlayersError(f"settings must be a dict, such as {{'max_epochs': 20}}; got {own!r:.60}")
        known = sorted(GLayers().get_params().keys() - {"inputs"}) if self.class_part == "g-layers" else []
        unknown = [name for name in own if name not in known]
        if unknown:
            raise GlayersError(
                f"class_part={self.class_part!r} has no setting {', '.join(map(repr, unknown))}; "
                f"known are {', '.join(known) or 'none'}"
            )
        return own


def fit_layers(given: Predictions, seed: int, settings: dict[str, Any]) -> Fitted:
    """Fit g-layers with out-of-fold predictions."""
    fitted = GLayers(**{"random_state": seed, "progress": False} | settings)._fit(given)
    return replace(fitted, out_of_fold=np.asarray(log_softmax(fitted.out_of_fold)))


def behind_layers(given: Predictions, layers: Fitted, folds: Ints, loss: str) -> FittedParts:
    """Fit the shared correction to the out-of-fold predictions of g-layers."""
    moved = given.with_logits(np.asarray(layers.out_of_fold))
    return fit_parts(moved, 1.0, ("shared",), folds, loss=loss)
