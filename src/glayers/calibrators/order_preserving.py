"""Logits and labels -> a map that keeps the ranking of the classes in every row. Rahimi et al., NeurIPS 2020.

The fit starts at temperature scaling. Cross-validation chooses the number of iterations and falls back to temperature
scaling where the map does not improve the held-out loss; then all rows are fitted once.
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.checks import check_choice, whole_number
from glayers.errors import needs_extra
from glayers.fitting.folds import assign_folds, fold_fractions, fold_weights
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, Reference
from glayers.maps.layouts import n_learned
from glayers.maps.order import General, Invariant, OrderPreservingStep, SharedCurve
from glayers.predictions import Predictions

_PATIENCE = 8
_TOLERANCE = 1e-7  # relative change of the loss per iteration: smaller gains never show in the held-out loss
# Above this many rows x classes the fit uses a random sample of the rows. One iteration over them takes a second.
_MOST_ENTRIES = 1_000_000


@dataclass(eq=False, repr=False)
class OrderPreserving(Calibrator):
    """Change logits but never their order, so accuracy and every top-k accuracy stay the same. Rahimi et al., 2020.

    Where the map does not improve the held-out loss, the fit falls back to temperature scaling, with a warning. The
    order is that of the logits that `transform` returns, in float64; as probabilities, classes far below may underflow
    to the same 0. The map cannot repair a model that ranks classes wrongly. Above 1,000,000 logits it is fitted on a
    random sample of the rows.

    Parameters
    ----------
    variant : {"general", "invariant", "diagonal"}, default "invariant"
        "general" multiplies the gaps between sorted logits by the output of a network that sees which class is which,
        "invariant" by that of one that sees sorted logits only. "diagonal" applies one increasing curve to all logits,
        with a handful of parameters for any number of classes.
    loss : {"log", "brier"}, default "log"
        The loss to minimise.
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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(2_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> p = OrderPreserving("diagonal").fit(np.sinh(z), labels).predict_proba(z)
    >>> bool((p.argmax(axis=1) == z.argmax(axis=1)).all())
    True
    """

    methods = tuple(
        Method(f"order-{variant}", summary, "ranking", "Rahimi et al., NeurIPS 2020", {"variant": variant}, "required")
        for variant, summary in (
            ("general", "Network on the gaps between sorted logits"),
            ("invariant", "As order-general, on sorted inputs"),
            ("diagonal", "One increasing curve for all logits"),
        )
    )
    _kept = ("held_out_loss_", "held_out_loss_of_temperature_")

    variant: Literal["general", "invariant", "diagonal"] = "invariant"
    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    n_folds: int = 5
    max_iterations: int = 100
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        check_choice(self.variant, ("diagonal", "general", "invariant"), "variant")
        whole_number(self.max_iterations, "max_iterations", least=0)
        seed = drawn_seed(self.random_state)
        start = Chain((self._start(given, seed),))
        most = max(2, _MOST_ENTRIES // given.n_classes)
        drawn = given
        if len(given) > most:
            drawn = given.take(np.sort(np.random.default_rng(seed).permutation(len(given))[:most]))
        found, iterations, loss, loss_at_start = self._descend(drawn, start, seed)
        notes = []
        if not iterations:
            notes.append(
                f"order-preserving maps fall back to temperature scaling: their held-out loss is {loss:.6g}, "
                f"that of temperature scaling {loss_at_start:.6g}"
            )
        return Fitted(
            Chain((Reference(),)) + found,
            f"order-preserving, {self.variant}",
            reason=f"least held-out loss at iteration {iterations}",
            iterations=iterations,
            n_parameters=n_learned(found) if iterations else 1,
            notes=tuple(notes),
            attributes={"held_out_loss_": min(loss, loss_at_start), "held_out_loss_of_temperature_": loss_at_start},
        )

    def _start(self, given: Predictions, seed: int) -> OrderPreservingStep:
        """Return the map that equals temperature scaling."""
        factor = fit_with_prior(given.logits, given.labels, given.weights).factor
        if self.variant == "general":
            return General.start(factor, given.n_classes, n_hidden=8, seed=seed)
        if self.variant == "invariant":
            return Invariant.start(factor, given.n_classes, n_hidden=8, seed=seed)
        knots = np.linspace(_lowest_knot(given, factor), -0.5, num=7)
        return SharedCurve.start(factor, knots, width=float(knots[1] - knots[0]) / 2)

    def _descend(self, given: Predictions, start: Chain, seed: int) -> tuple[Chain, int, float, float]:
        """Choose the number of iterations by cross-validation, then fit all rows once for as many.

        Return the map, the iterations, and the held-out losses of the best iteration and of the start.
        """
        with needs_extra("fit"):
            import torch

            from glayers.fitting.adam import EpochSelection
            from glayers.fitting.objective import Objective, row_loss
        folds = assign_folds(len(given), given.groups, self.n_folds, seed)
        train, held_out = fold_weights(folds, given.weights)
        fixed = {}  # what is set before the fit is the same for all members
        for name, value in start.parameters().items():
            if name in ("0.factor", "0.knots", "0.widths"):
                fixed[name] = torch.as_tensor(value)[None]
        objective = Objective(
            chain=start,
            loss=row_loss(self.loss),
            logits=torch.as_tensor(with_reference_class(given.logits.astype(np.float64))),
            labels=torch.as_tensor(np.array(given.labels)),
            train=torch.as_tensor(train),
            held_out=torch.as_tensor(held_out),
            fixed=fixed,
        )
        selection = EpochSelection(1, fold_fractions(folds, given.weights), _PATIENCE)
        _minimise(objective, self.max_iterations, selection)
        loss = float(selection.best[0])
        loss_at_start = float(selection.trace[0][0])
        if not loss < loss_at_start:
            return start, 0, loss, loss_at_start
        iterations = int(selection.best_epoch[0])
        weights = np.ones(len(given)) if given.weights is None else given.weights
        whole = torch.as_tensor((weights / weights.sum())[None, :])
        objective = replace(objective, train=whole, held_out=whole)
        fitted = objective.fitted(0, _minimise(objective, iterations)).member(0)
        return fitted, iterations, loss, loss_at_start


def _lowest_knot(given: Predictions, factor: float) -> float:
    """Return the first knot of the curve: a low log-probability among the five highest of each row."""
    rows = slice(None, None, max(1, len(given) // 5000))
    log_p = log_softmax(with_reference_class(given.logits[rows].astype(np.float64)) * factor)
    highest = np.sort(log_p, axis=1)[:, -5:]
    return float(np.clip(np.quantile(highest[np.isfinite(highest)], 0.05), -30.0, -3.0))


def _minimise(objective: Any, max_iterations: int, selection: Any = None) -> Array:
    """Minimise the mean objective of all members by SciPy's L-BFGS, for as long as the selection lets them continue.

    Folds have nearly the same objective, so one run over all of them takes the path that each would take alone.
    """
    import torch
    from scipy.optimize import OptimizeResult, minimize  # on first use: importing it takes longer than glayers

    start = objective.start()

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        value, gradient = objective(torch.as_tensor(flat).reshape(start.shape))
        return float(value.mean()), gradient.numpy().ravel() / len(start)

    def on_iteration(intermediate_result: OptimizeResult) -> None:
        if selection is None:
            return
        point = intermediate_result.x.reshape(start.shape)
        losses = objective.mean_losses(torch.as_tensor(point), objective.held_out)
        if not selection(len(selection.trace), point, losses, losses).any():
            raise StopIteration

    first = start.numpy().ravel()
    on_iteration(OptimizeResult(x=first))
    options = {"maxiter": max_iterations, "maxfun": 20 * max_iterations, "ftol": _TOLERANCE, "gtol": 0.0}
    found = minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", callback=on_iteration, options=options)
    return np.asarray(found.x.reshape(start.shape))
