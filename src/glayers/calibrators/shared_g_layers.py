"""Held-out logits and labels -> dense g-layers for what differs between classes, one shared correction for the rest.

Symmetry answers the paper's open question of overfitting: after the class-wise part, the same small function acts on
every class, so thousands of rows x classes teach thirty numbers. It is fitted to predictions for rows that the
class-wise part had not seen, which is where its errors show.
"""

import time
import warnings
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats
from glayers.calibrators.base import Calibrator, apply_map
from glayers.calibrators.shared_recalibration import recalibrate
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.fitting.folds import assign_folds
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, LogSoftmax, Reference, Scale
from glayers.metrics import nll_from_logits
from glayers.predictions import Predictions


class SharedGLayers(Calibrator):
    """G-layers followed by a correction that all classes share; the most calibrated single method here.

    `class_part="g-layers"` puts `GLayers` in front (needs torch), "temperature" one factor only. `settings` are passed
    on to `GLayers`. Learned: `map_`, `diagnostics_`, `out_of_fold_` (log-probabilities of every row by fits that had
    not seen it), `gain_` and `gain_error_` (what the shared correction lowers the held-out loss by).
    """

    def __init__(
        self,
        class_part: Literal["g-layers", "temperature"] = "g-layers",
        *,
        n_folds: int = 5,
        random_state: int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.class_part = class_part
        self.n_folds = n_folds
        self.random_state = random_state
        self.settings = settings

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.class_part == "g-layers":
            chain, inputs, n_parameters = self._g_layers(given, seed)
        elif self.class_part == "temperature":
            factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
            chain, n_parameters = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax())), 1
            inputs = chain(given.logits.astype(np.float64))
        else:
            raise GlayersError(f"class_part must be 'g-layers' or 'temperature'; got {self.class_part!r}")
        # Other folds than the class-wise part had, so that no fold's rows share one model's errors.
        folds = assign_folds(given.labels, given.groups, self.n_folds, seed + 1)
        found = recalibrate(inputs, given, folds)
        kept = bool(found.chain.steps)
        self.map_, self.out_of_fold_ = chain + found.chain, found.out_of_fold
        self.gain_, self.gain_error_ = found.gain, found.error
        self.diagnostics_ = Diagnostics(
            method="shared g-layers",
            converged=True,
            reason=f"the shared correction gains {found.gain:.2g} +- {found.error:.2g} out of fold: "
            + ("kept" if kept else "left out"),
            iterations=len(folds),
            loss_before=nll_from_logits(given.logits, given.labels, given.weights),
            loss_after=nll_from_logits(apply_map(self.map_, given.logits), given.labels, given.weights),
            moved=True,
            n_parameters=n_parameters + (30 if kept else 0),
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if not kept:
            warnings.warn(
                f"the shared correction gained {found.gain:.2g} +- {found.error:.2g} out of fold, which is no gain to "
                f"rely on: the class-wise part is returned alone",
                GlayersWarning,
                stacklevel=3,
            )

    def _g_layers(self, given: Predictions, seed: int) -> tuple[Chain, Floats, int]:
        from glayers.calibrators.g_layers import GLayers

        options = {"n_folds": self.n_folds, "random_state": seed} | (self.settings or {})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no row is labelled", GlayersWarning)  # said once, by our own fit
            part = GLayers(**options).fit(given.logits, given.labels, given.weights, given.groups)
        if not len(part.out_of_fold_):
            raise GlayersError("settings leave GLayers without cross-validation, which the shared correction needs")
        return (
            part.map_ + Chain((LogSoftmax(),)),
            log_softmax(with_reference_class(part.out_of_fold_)),
            part.n_parameters_,
        )
