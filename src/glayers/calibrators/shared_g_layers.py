"""Held-out logits and labels -> dense g-layers for what differs between classes, one shared correction for the rest.

Symmetry answers the paper's open question of overfitting: after the class-wise part, the same small function acts on
every class, so thousands of rows x classes teach thirty numbers. It is fitted to predictions for rows that the
class-wise part had not seen, which is where its errors show.
"""

import time
import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import log_softmax
from glayers.calibrators.base import Calibrator, Method, apply_map
from glayers.calibrators.class_parts import CLASS_PARTS, Options
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.shared_recalibration import recalibrate
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.comparison import gain_in_words
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.fitting.folds import assign_folds
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain
from glayers.maps.keep_order import KeepOrder, in_order_of
from glayers.maps.layouts import n_learned
from glayers.metrics.old import nll_from_logits
from glayers.predictions import Predictions
from glayers.settings import whole_number


class SharedGLayers(Calibrator):
    """A class-wise part, then a correction that all classes share; the most calibrated single method here.

    `class_part="g-layers"` puts `GLayers` in front (needs torch), with `settings` passed on to it; "matrix", "vector"
    and "temperature" are lighter and take none. `keep_order=True` bends the result back wherever it would change the
    order of a row's classes, so that accuracy and every top-k accuracy are kept; only logits that differ in their last
    digits alone may become a tie. Weights count as rows: twice the weight everywhere is twice the evidence.

    Learned: `map_`, `diagnostics_`, `out_of_fold_` (log-probabilities of every row by fits that had not seen it),
    `gain_` and `gain_error_` (what the shared correction lowers the held-out loss by).
    """

    _kept: ClassVar[tuple[str, ...]] = ("gain_", "gain_error_")

    methods = (
        Method(
            "shared-g-layers",
            "G-layers, then a correction for all classes",
            keeps="nothing",
            reference="glayers",
            torch="required",
        ),
    )

    def __init__(
        self,
        class_part: Literal["g-layers", "matrix", "vector", "temperature"] = "g-layers",
        *,
        keep_order: bool = False,
        n_folds: int = 5,
        random_state: int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.class_part = class_part
        self.keep_order = keep_order
        self.n_folds = n_folds
        self.random_state = random_state
        self.settings = settings

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        n_folds, own = whole_number(self.n_folds, "n_folds", least=2), self._own_settings()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options = Options(n_folds=n_folds, seed=seed, settings={"n_folds": n_folds} | own)
        part = CLASS_PARTS[self.class_part](given, options)
        # Other folds than the class-wise part had, so that no fold's rows share one model's errors.
        folds = assign_folds(len(given), given.groups, n_folds, seed + 1)
        found = recalibrate(part.out_of_fold, given, folds)
        kept = bool(found.chain.steps)
        self.map_, self.out_of_fold_ = part.chain + found.chain, found.out_of_fold
        if self.keep_order:
            kept_order = KeepOrder.of(
                self.map_, fit_inverse_temperature(given.logits, given.labels, given.weights).factor
            )
            self.map_ = Chain((kept_order,))
            self.out_of_fold_ = log_softmax(
                in_order_of(given.logits.astype(np.float64), self.out_of_fold_, kept_order.slope)
            )
        self.gain_, self.gain_error_ = found.gain, found.error
        said = f"the shared correction gains {gain_in_words(found.gain, found.error)} out of fold"
        self.diagnostics_ = Diagnostics(
            method=f"shared g-layers after {self.class_part}",
            converged=part.converged,
            reason=f"{said}: {'kept' if kept else 'left out'}; {self.class_part}: {part.reason}",
            iterations=1 + int(folds.max()),
            loss_before=nll_from_logits(given.logits, given.labels, given.weights),
            loss_after=nll_from_logits(apply_map(self.map_, given.logits), given.labels, given.weights),
            moved=True,
            n_parameters=part.n_parameters + n_learned(found.chain),
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if not kept:
            why = "which is a loss" if np.isfinite(found.error) else "which is no evidence"
            warnings.warn(f"{said}, {why}: the class-wise part is alone", GlayersWarning, stacklevel=3)

    def _own_settings(self) -> dict[str, Any]:
        """Return the settings for g-layers, once it is known that there are such."""
        if not isinstance(self.class_part, str) or self.class_part not in CLASS_PARTS:
            raise GlayersError(f"class_part must be one of {sorted(CLASS_PARTS)}; got {self.class_part!r}")
        own = {} if self.settings is None else self.settings
        if not isinstance(own, dict):
            raise GlayersError(f"settings must be a dict, such as {{'max_epochs': 20}}; got {own!r:.60}")
        known = sorted(GLayers().get_params()) if self.class_part == "g-layers" else []
        unknown = [name for name in own if name not in known]
        if unknown:
            raise GlayersError(
                f"class_part={self.class_part!r} has no setting {', '.join(map(repr, unknown))}; "
                f"known are {', '.join(known) or 'none'}"
            )
        return own
