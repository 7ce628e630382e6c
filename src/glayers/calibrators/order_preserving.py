"""Logits and labels -> a map that keeps the ranking of the classes in every row. Rahimi et al., NeurIPS 2020.

The fit starts at temperature scaling. Cross-validation chooses the number of iterations and falls back to temperature
scaling where the map does not improve the held-out loss; then all rows are fitted once.
"""

from dataclasses import KW_ONLY, replace
from typing import Any, Literal

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.checks import whole_number
from glayers.errors import needs_extra
from glayers.fitting.folds import assign_folds, draw_rows, fold_fractions, fold_weights, row_weights
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, Reference, n_learned
from glayers.maps.order import Invariant
from glayers.predictions import Predictions

# Above this many rows x classes the fit uses a random sample of the rows. One iteration over them takes a second.
_MOST_ENTRIES = 1_000_000


class OrderPreserving(Calibrator):
    """Change logits but never their order, so accuracy and every top-k accuracy stay the same. Rahimi et al., 2020.

    Where the map does not improve the held-out loss, the fit falls back to temperature scaling, with a warning. The
    order is that of the logits that `transform` returns, in float64; as probabilities, classes far below may underflow
    to the same 0. The map cannot repair a model that ranks classes wrongly. Above 1,000,000 logits it is fitted on a
    random sample of the rows.

    The map multiplies the gaps between sorted logits by the output of a network that sees the sorted logits only, so
    that it treats all classes alike.

    Parameters
    ----------
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
    >>> p = OrderPreserving().fit(np.sinh(z), labels).predict_proba(z)
    >>> bool((p.argmax(axis=1) == z.argmax(axis=1)).all())
    True
    """

    methods = (
        Method(
            "order-invariant",
            "Network on the gaps between sorted logits",
            "ranking",
            "Rahimi et al., NeurIPS 2020",
            torch="required",
        ),
    )
    _kept = ("held_out_loss_", "held_out_loss_of_temperature_")

    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    n_folds: int = 5
    max_iterations: int = 100
    random_state: int | None = 0

    def _fit(self, given: Predictions) -> Fitted:
        whole_number(self.max_iterations, "max_iterations", least=0)
        seed = drawn_seed(self.random_state)
        factor = fit_with_prior(given.logits, given.labels, given.weights).factor
        start = Chain((Invariant.start(factor, given.n_classes, n_hidden=8, seed=seed),))
        most = max(2, _MOST_ENTRIES // given.n_classes)
        drawn = draw_rows(len(given), given.weights, most, seed)
        found, course = self._descend(given.take(drawn), start, seed)
        iterations = int(course.best_epoch[0])
        loss_at_start = float(course.trace[0][0])
        notes = []
        if not iterations:
            reason = f"no iteration lowers its held-out loss of {loss_at_start:.6g}"
            notes.append(f"order-preserving maps fall back to temperature scaling: {reason}")
        return Fitted(
            Chain((Reference(),)) + found,
            "order-preserving map",
            reason=f"least held-out loss at iteration {iterations}",
            iterations=iterations,
            n_parameters=n_learned(found) if iterations else 1,
            notes=notes,
            attributes={"held_out_loss_": float(course.best[0]), "held_out_loss_of_temperature_": loss_at_start},
        )

    def _descend(self, given: Predictions, start: Chain, seed: int) -> tuple[Chain, Any]:
        """Choose the number of iterations by cross-validation, then fit all rows once for as many.

        Return the map, and the course of the cross-validation.
        """
        with needs_extra("fit"):
            import torch

            from glayers.fitting.adam import EpochSelection
            from glayers.fitting.objective import Objective, row_loss
        folds = assign_folds(len(given), given.groups, self.n_folds, seed)
        train, held_out = fold_weights(folds, given.weights)
        objective = Objective(
            chain=start,
            loss=row_loss(self.loss),
            logits=torch.as_tensor(with_reference_class(given.logits.astype(np.float64))),
            labels=torch.as_tensor(np.array(given.labels)),
            train=torch.as_tensor(train),
            held_out=torch.as_tensor(held_out),
            fixed={"0.factor": torch.as_tensor(start.parameters()["0.factor"])[None]},
        )
        selection = EpochSelection(1, fold_fractions(folds, given.weights), patience=8)
        _minimise(objective, self.max_iterations, selection)
        if not selection.best_epoch[0]:
            return start, selection
        whole = row_weights(given) / row_weights(given).sum()
        objective = replace(objective, train=torch.as_tensor(whole[None, :]))
        parameters = _minimise(objective, selection.best_epoch[0])
        return objective.fitted(0, parameters).member(0), selection


def _minimise(objective: Any, max_iterations: int, selection: Any = None) -> Array:
    """Minimise the mean objective of all members by SciPy's L-BFGS, for as long as the selection lets them continue.

    Folds have nearly the same objective, so one run over all of them takes the path that each would take alone.
    """
    import torch
    from scipy.optimize import minimize  # on first use: importing it takes longer than glayers

    start = objective.start()

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        value, gradient = objective(torch.as_tensor(flat).reshape(start.shape))
        return float(value.mean()), gradient.numpy().ravel() / len(start)

    def on_iteration(flat: Floats) -> None:
        if selection is None:
            return
        point = flat.reshape(start.shape)
        losses = objective.mean_losses(torch.as_tensor(point), objective.held_out)
        if not selection(len(selection.trace), point, losses, losses).any():
            raise StopIteration

    first = start.numpy().ravel()
    on_iteration(first)
    # Smaller relative gains per iteration than `ftol` never show in the held-out loss.
    options = {"maxiter": max_iterations, "maxfun": 20 * max_iterations, "ftol": 1e-7, "gtol": 0.0}
    found = minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", callback=on_iteration, options=options)
    return np.asarray(found.x.reshape(start.shape))
