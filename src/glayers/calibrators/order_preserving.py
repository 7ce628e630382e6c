"""Logits and labels -> a map that keeps every ranking: Rahimi et al., 2020, fitted by the common engine.

Starts as temperature scaling; folds say how long to descend and whether it was worth it; then all rows are fitted once.
"""

import time
import warnings
from typing import Literal

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array
from glayers.calibrators.base import Calibrator, Method, apply_map, needs_torch
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, Reference
from glayers.maps.order_preserving import General, Invariant, OrderPreservingStep, SharedCurve
from glayers.metrics.old import nll_from_logits
from glayers.predictions import Predictions
from glayers.settings import whole_number

# Rows x classes that a fit looks at: beyond it, rows are drawn. An iteration over them takes about a second.
_MOST_ENTRIES = 1_000_000


class OrderPreserving(Calibrator):
    """Bend logits, never their order: accuracy and every top-k accuracy are kept exactly. Rahimi et al., 2020.

    `variant="general"` multiplies the gaps between sorted logits by the output of a network that sees which class is
    which, `"invariant"` by that of one that sees sorted logits only, and `"diagonal"` sends all classes through one
    increasing curve, a handful of numbers whatever the number of classes. Where no variant beats temperature scaling
    out of fold, temperature scaling is returned, with a warning.

    The order is that of the logits `transform` returns, in float64, strict where the input's is; as probabilities,
    classes far below may underflow to the same 0. A class without rows keeps what the network says of it.

    Cannot: repair a model that ranks classes wrongly or favours some of them: a class prior moves only within gaps.
    Above 1,000,000 logits it is fitted on a random share of the rows.
    """

    _kept = ("held_out_loss_", "held_out_loss_of_temperature_")

    methods = (
        Method(
            "order-general",
            "Network on the gaps between sorted logits",
            keeps="ranking",
            reference="Rahimi et al., Intra Order-preserving Functions for Calibration, NeurIPS 2020",
            settings={"variant": "general"},
            torch="required",
        ),
        Method(
            "order-invariant",
            "The same, treating all classes alike",
            keeps="ranking",
            reference="Rahimi et al., Intra Order-preserving Functions for Calibration, NeurIPS 2020",
            settings={"variant": "invariant"},
            torch="required",
        ),
        Method(
            "order-diagonal",
            "One increasing curve for all logits",
            keeps="ranking",
            reference="Rahimi et al., Intra Order-preserving Functions for Calibration, NeurIPS 2020",
            settings={"variant": "diagonal"},
            torch="required",
        ),
    )

    def __init__(
        self,
        variant: Literal["general", "invariant", "diagonal"] = "invariant",
        *,
        loss: Literal["log", "brier"] = "log",
        n_hidden: int = 8,
        n_knots: int = 7,
        n_folds: int = 5,
        max_iterations: int = 100,
        random_state: int | None = 0,
    ) -> None:
        self.variant = variant
        self.loss = loss
        self.n_hidden = n_hidden
        self.n_knots = n_knots
        self.n_folds = n_folds
        self.max_iterations = max_iterations
        self.random_state = random_state

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
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
        if found.gain <= 0:
            warnings.warn(
                f"order-preserving maps gained nothing over temperature scaling out of fold "
                f"({found.held_out:.6g} against {found.held_out_start:.6g}): temperature scaling is returned",
                GlayersWarning,
                stacklevel=3,
            )
        self.map_ = Chain((Reference(), found.step))
        self.held_out_loss_, self.held_out_loss_of_temperature_ = found.held_out, found.held_out_start
        before, after = (
            nll_from_logits(logits, given.labels, given.weights)
            for logits in (given.logits, apply_map(self.map_, given.logits))
        )
        n_learned = sum(np.size(found.step.parameters()[name]) for name in _LEARNED[self.variant])
        self.diagnostics_ = Diagnostics(
            method=f"order-preserving, {self.variant}",
            converged=True,
            reason=f"least out-of-fold loss at iteration {found.iterations}",
            iterations=found.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=1 + (n_learned if found.gain > 0 else 0),
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )

    def _start(self, given: Predictions, factor: float, seed: int) -> OrderPreservingStep:
        if self.variant == "diagonal":
            n_knots = whole_number(self.n_knots, "n_knots", least=2)
            deepest = _deepest(given, factor)
            knots = np.linspace(deepest, -0.5, n_knots)
            return SharedCurve.start(factor, knots, width=float(knots[1] - knots[0]) / 2)
        n_hidden = whole_number(self.n_hidden, "n_hidden", least=1)
        kind = {"general": General, "invariant": Invariant}[self.variant]
        return kind.start(factor, given.n_classes, n_hidden, seed)


# What each variant learns; the temperature and the places of the knots are found before.
_LEARNED = {
    "general": ("weight_in", "bias_in", "weight_out", "bias_out"),
    "invariant": ("weight_in", "bias_in", "weight_out", "bias_out"),
    "diagonal": ("log_slopes",),
}


def _drawn_rows(given: Predictions, seed: int) -> Array:
    """Return all rows, or as many drawn ones as a fit can bear."""
    most = max(2, _MOST_ENTRIES // given.n_classes)
    if len(given) <= most:
        return np.arange(len(given))
    return np.sort(np.random.default_rng(seed).permutation(len(given))[:most])


def _deepest(given: Predictions, factor: float) -> float:
    """Where the curve's first knot lies: a low log-probability among those that some row's label has, or nearly so."""
    rows = slice(None, None, max(1, len(given) // 5000))
    log_p = log_softmax(with_reference_class(given.logits[rows].astype(np.float64)) * factor)
    highest = -np.sort(-log_p, axis=1)[:, :5]
    return float(np.clip(np.quantile(highest, 0.05), -30.0, -3.0))
