"""Logits and labels -> a map that keeps the ranking of the classes in every row. Rahimi et al., NeurIPS 2020.

The fit starts at temperature scaling, and trains as g-layers do. Cross-validation chooses the number of
epochs, and falls back to temperature scaling where the map does not improve the held-out loss.
"""

from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, Literal

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.temperature import tempered
from glayers.checks import whole_number
from glayers.errors import needs_extra
from glayers.fitting.folds import assign_folds, draw_rows
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, Floor, Reference, n_learned
from glayers.maps.order import Invariant
from glayers.predictions import Predictions

# Above this many rows x classes the fit uses a random sample of the rows. One epoch over them takes a second.
_MOST_ENTRIES = 1_000_000
_SETTING = (0.02, 1.0)  # the learning rate, and the factor that is not learned: inputs are tempered already
_PATIENCE = 5
# The map keeps impossible classes away from the others by itself.
_NO_FLOOR = Floor(np.asarray(np.inf), np.asarray(np.inf), (Chain(()),))


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
        The number of folds that choose the number of epochs.
    max_epochs : int, default 100
        The largest number of epochs.
    random_state : int or None, default 0
        The seed of the folds, the sample, the batches and the network's start.

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
    max_epochs: int = 100
    random_state: int | None = 0

    # What training asks for, and no setting changes.
    batch_size: ClassVar[None] = None
    device: ClassVar[str] = "cpu"
    progress: ClassVar[bool] = False

    def _fit(self, given: Predictions) -> Fitted:
        whole_number(self.max_epochs, "max_epochs", least=0)
        seed = drawn_seed(self.random_state)
        factor = fit_with_prior(given.logits, given.labels, given.weights).factor
        start = Invariant.start(1.0, given.n_classes, n_hidden=8, seed=seed)
        most = max(2, _MOST_ENTRIES // given.n_classes)
        drawn = given.take(draw_rows(len(given), given.groups, given.weights, most, seed))
        with needs_extra("fit"):
            from glayers.fitting.adam import LayerTraining
        inputs = tempered(factor)(drawn.logits.astype(np.float64))
        training = LayerTraining(Chain((start,)), inputs, drawn, _NO_FLOOR, self, seed)
        folds = assign_folds(len(drawn), drawn.groups, self.n_folds, seed)
        [loss], models, _, course = training.cross_validate([_SETTING], folds, self.max_epochs, _PATIENCE, False)
        epoch = int(course.best_epoch[0])
        loss_at_start = float(course.trace[0][0])
        step: Any = start
        notes = []
        if epoch:
            # Folds share start and batches, and so end close to each other. A mean of maps would keep no exact order.
            [step] = models.map_parameters(lambda value: value.mean(axis=0)).steps
        else:
            reason = f"no epoch lowers its held-out loss of {loss_at_start:.6g}"
            notes.append(f"order-preserving maps fall back to temperature scaling: {reason}")
        found = Chain((replace(step, factor=np.asarray(factor)),))
        return Fitted(
            Chain((Reference(),)) + found,
            "order-preserving map",
            reason=f"least held-out loss at epoch {epoch}",
            iterations=epoch,
            n_parameters=n_learned(found) if epoch else 1,
            notes=notes,
            attributes={"held_out_loss_": float(loss), "held_out_loss_of_temperature_": loss_at_start},
        )

    def _objective(self, objective: Any, factors: Floats) -> Any:
        return replace(objective, fixed={"0.factor": objective.like(factors)})
