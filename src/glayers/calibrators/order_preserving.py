"""Logits and labels -> a map that keeps the ranking of the classes in every row. Rahimi et al., NeurIPS 2020.

The fit starts at temperature scaling. Cross-validation chooses the number of iterations and falls back to temperature
scaling where the map does not improve the held-out loss; then all rows are fitted once.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array
from glayers.calibrators.base import Calibrator, Fitted, Method, needs_torch
from glayers.checks import whole_number
from glayers.errors import GlayersError
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, Reference
from glayers.maps.order import General, Invariant, OrderPreservingStep, SharedCurve
from glayers.predictions import Predictions

# Above this many rows x classes the fit uses a random sample of the rows. One iteration over them takes a second.
_MOST_ENTRIES = 1_000_000


@dataclass(eq=False, repr=False)
class OrderPreserving(Calibrator):
    """Change logits but never their order, so accuracy and every top-k accuracy stay the same. Rahimi et al., 2020.

    Where the map does not improve the held-out loss, temperature scaling is returned with a warning. The order is that
    of the logits that `transform` returns, in float64; as probabilities, classes far below may underflow to the same
    0. The map cannot repair a model that ranks classes wrongly. Above 1,000,000 logits it is fitted on a random sample
    of the rows.

    Parameters
    ----------
    variant : {"general", "invariant", "diagonal"}, default "invariant"
        "general" multiplies the gaps between sorted logits by the output of a network that sees which class is which,
        "invariant" by that of one that sees sorted logits only. "diagonal" applies one increasing curve to all logits,
        with a handful of parameters for any number of classes.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
    n_hidden : int, default 8
        Hidden units of the network ("general" and "invariant").
    n_knots : int, default 7
        Knots of the curve ("diagonal").
    n_folds : int, default 5
        The number of folds that choose the number of iterations.
    max_iterations : int, default 100
        The largest number of iterations.
    random_state : int or None, default 0
        The seed of the folds, the sample and the network's start.

    Attributes
    ----------
    held_out_loss_ : float
        The cross-validated loss of what is returned.
    held_out_loss_of_temperature_ : float
        The cross-validated loss of temperature scaling.
    """

    methods = tuple(
        Method(f"order-{variant}", summary, "ranking", "Rahimi et al., NeurIPS 2020", {"variant": variant}, "required")
        for variant, summary in (
            ("general", "Network on the gaps between sorted logits"),
            ("invariant", "The same, treating all classes alike"),
            ("diagonal", "One increasing curve for all logits"),
        )
    )
    _kept = ("held_out_loss_", "held_out_loss_of_temperature_")

    variant: Literal["general", "invariant", "diagonal"] = "invariant"
    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    n_hidden: int = 8
    n_knots: int = 7
    n_folds: int = 5
    max_iterations: int = 100
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        if not isinstance(self.variant, str) or self.variant not in _LEARNED:
            raise GlayersError(f"variant must be one of {sorted(_LEARNED)}; got {self.variant!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
        start = self._start(given, factor, seed)
        with needs_torch("OrderPreserving"):
            from glayers.calibrators.order_descent import descend_in_order
        found = descend_in_order(
            given.take(_drawn_rows(given, seed)),
            start,
            _LEARNED[self.variant],
            loss=self.loss,
            n_folds=self.n_folds,
            max_iterations=self.max_iterations,
            seed=seed,
        )
        n_learned = sum(np.size(found.step.parameters()[name]) for name in _LEARNED[self.variant])
        note = (
            f"order-preserving maps did not improve the held-out loss of temperature scaling "
            f"({found.held_out:.6g} against {found.held_out_start:.6g}): temperature scaling is returned"
        )
        return Fitted(
            Chain((Reference(), found.step)),
            f"order-preserving, {self.variant}",
            reason=f"least out-of-fold loss at iteration {found.iterations}",
            iterations=found.iterations,
            n_parameters=1 + (n_learned if found.gain > 0 else 0),
            notes=() if found.gain > 0 else (note,),
            attributes=dict(zip(self._kept, (found.held_out, found.held_out_start), strict=True)),
        )

    def _start(self, given: Predictions, factor: float, seed: int) -> OrderPreservingStep:
        if self.variant == "diagonal":
            n_knots = whole_number(self.n_knots, "n_knots", least=2)
            knots = np.linspace(_deepest(given, factor), -0.5, n_knots)
            return SharedCurve.start(factor, knots, width=float(knots[1] - knots[0]) / 2)
        n_hidden = whole_number(self.n_hidden, "n_hidden", least=1)
        kind = General if self.variant == "general" else Invariant
        return kind.start(factor, given.n_classes, n_hidden, seed)


# What each variant learns; the temperature and the knots are set before.
_LEARNED = {
    "general": ("weight_in", "bias_in", "weight_out", "bias_out"),
    "invariant": ("weight_in", "bias_in", "weight_out", "bias_out"),
    "diagonal": ("log_slopes",),
}


def _drawn_rows(given: Predictions, seed: int) -> Array:
    """Return all rows, or a random sample of the largest size that a fit uses."""
    most = max(2, _MOST_ENTRIES // given.n_classes)
    if len(given) <= most:
        return np.arange(len(given))
    return np.sort(np.random.default_rng(seed).permutation(len(given))[:most])


def _deepest(given: Predictions, factor: float) -> float:
    """Return the first knot of the curve: a low log-probability among the five highest of each row."""
    rows = slice(None, None, max(1, len(given) // 5000))
    log_p = log_softmax(with_reference_class(given.logits[rows].astype(np.float64)) * factor)
    highest = -np.sort(-log_p, axis=1)[:, :5]
    return float(np.clip(np.quantile(highest, 0.05), -30.0, -3.0))
