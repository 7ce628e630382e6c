"""The contract of a calibrator: an estimator in the style of scikit-learn, logits in, calibrated probabilities out.

Settings go into the constructor, `fit` learns, and learned state ends in `_`. A subclass writes one pure method:
`_fit` turns predictions into a `Fitted` record. The base class does the rest once: it checks the input, times the fit,
measures the loss before and after, fills `diagnostics_`, issues every warning, predicts, saves and loads.
"""

import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.calibrators.artifact import Artifact, check_names
from glayers.calibrators.artifact_file import write_artifact
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.logits import check_logits
from glayers.maps import Chain
from glayers.predictions.predictions import Predictions


@dataclass(frozen=True, eq=False)
class Fitted:
    """What one fit found: the map, how the fit ended, and what the user should know.

    `reason` says in a few words why the fit ended as it did. `notes` are sentences that `fit` issues as warnings.
    `out_of_fold` holds log-probabilities of every row by fits that had not seen it. `attributes` are further learned
    attributes of the calibrator, such as `cv_results_`. `losses` are the mean losses before and after, for a fit that
    knows them already; otherwise the base class measures them. `n_parameters` defaults to the size of the map.
    """

    map: Chain
    method: str
    converged: bool = True
    reason: str = "solved exactly"
    iterations: int = 1
    n_parameters: int | None = None
    out_of_fold: Floats | None = None
    notes: tuple[str, ...] = ()
    losses: tuple[float, float] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One entry of `CALIBRATORS`: its name, the settings that make it, and its description for tables and guides."""

    name: str
    summary: str  # one line in standard terms, such as "One scale and one shift per class"
    keeps: str  # what never changes: "ranking", "predicted class" or "nothing"
    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs_torch: bool = False  # to fit; predicting never needs torch


class Calibrator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Anything that makes probabilities true after training: a map on logits, fitted by a proper loss.

    Every fit leaves `map_`, `diagnostics_`, `classes_`, `class_names_` (None if not given), `versions_` and
    `out_of_fold_`: log-probabilities of every row by fits that had not seen it, or None without cross-validation.
    """

    map_: Chain
    diagnostics_: Diagnostics
    class_names_: tuple[str, ...] | None
    versions_: dict[str, str]
    out_of_fold_: Any
    methods: ClassVar[tuple[Method, ...]] = ()
    _kept: ClassVar[tuple[str, ...]] = ()  # learned beyond the map, in values JSON can hold: a file keeps them too
    # Methods that stop early report it in `diagnostics_` only: their held-out loss says whether the fit is good.
    _warns_if_not_converged: ClassVar[bool] = True

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from logits (n, m) and labels (n,) of rows that the network was not trained on."""
        return self._learn(Predictions(logits, labels, weights=sample_weight, groups=groups))

    def fit_predictions(self, predictions: Predictions) -> Self:
        """Learn from predictions, as `fit` does from their parts, and remember their class names."""
        return self._learn(predictions)

    def predict_proba(self, logits: Any) -> Array:
        """Return calibrated probabilities (n, classes), each row summing to 1."""
        return softmax(self.transform(logits))

    def transform(self, logits: Any) -> Floats:
        """Return calibrated logits (n, classes) whose softmax is `predict_proba`, in float64."""
        check_is_fitted(self)
        given = check_logits(logits)
        if given.shape[1] != self.n_features_in_:
            raise BadPredictions(f"fitted on {self.n_features_in_} logits a row; got {given.shape[1]}")
        return apply_map(self.map_, given)

    def predict(self, logits: Any) -> Array:
        """Return the most probable class of each row."""
        best = self.transform(logits).argmax(axis=1)
        return self.classes_[best]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to one `.safetensors` file that `glayers.load` reads, in one step or not at all."""
        from glayers.calibrators.catalogue import CLASSES  # which knows every class, this one too

        check_is_fitted(self)
        if CLASSES.get(type(self).__name__) is not type(self):
            raise GlayersError(
                f"{type(self).__name__} is no calibrator of glayers, and `load` would not know it: keep it in memory, "
                f"or its numbers, `map_.parameters()`, in a file of your own"
            )
        artifact = Artifact(
            calibrator=type(self).__name__,
            settings=self.get_params(deep=False),
            chain=self.map_,
            n_logits=self.n_features_in_,
            class_names=self.class_names_,
            diagnostics=self.diagnostics_,
            kept={name: getattr(self, name) for name in self._kept},
            versions=self.versions_,
        )
        write_artifact(artifact, Path(path))

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """Return the calibrator a file holds; what `_kept` does not name, such as out-of-fold rows, is not in it."""
        check_names(artifact.settings, set(cls._get_param_names()), f"setting of {cls.__name__}")
        check_names(artifact.kept, set(cls._kept), f"kept attribute of {cls.__name__}")
        new = cls(**artifact.settings)
        new.map_, new.diagnostics_ = artifact.chain, artifact.diagnostics
        for name, value in artifact.kept.items():
            setattr(new, name, value)
        new._know(artifact.n_logits, artifact.class_names, artifact.versions)
        return new

    @property
    def n_parameters_(self) -> int:
        """How many numbers were learned."""
        return self.diagnostics_.n_parameters

    @abstractmethod
    def _fit(self, given: Predictions) -> Fitted:
        """Return what the fit found. Sets nothing and warns of nothing, so that other calibrators can build on it."""

    def _learn(self, given: Predictions) -> Self:
        """Fit, keep what was learned, and warn; `fit` and `fit_predictions` both call it, so `stacklevel` is right."""
        began = time.perf_counter()
        fitted = self._fit(given)
        if fitted is None:  # transition: this calibrator still sets `map_` and `diagnostics_` itself
            return self._fitted_on(given)
        # In one order and type, as a file gives them back: sums of products depend on it in their last digit.
        self.map_ = fitted.map.map_parameters(lambda value: np.asarray(value, np.float64, order="C"))
        self.out_of_fold_ = fitted.out_of_fold
        for name, value in fitted.attributes.items():
            setattr(self, name, value)
        before, after = self._losses(given) if fitted.losses is None else fitted.losses
        self.diagnostics_ = Diagnostics(
            method=fitted.method,
            converged=fitted.converged,
            reason=fitted.reason,
            iterations=fitted.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=self.map_.n_parameters if fitted.n_parameters is None else fitted.n_parameters,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        self._know(given.logits.shape[1], given.class_names, {"glayers": version("glayers"), "numpy": np.__version__})
        for note in (*fitted.notes, *self._remarks(noted=bool(fitted.notes))):
            warnings.warn(note, GlayersWarning, stacklevel=3)
        return self

    def __sklearn_tags__(self) -> Tags:
        # Classes and probabilities make a classifier: without the tag scikit-learn scores and splits as for regression.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags()
        tags.transformer_tags = TransformerTags(preserves_dtype=["float64"])
        tags.target_tags.required = True
        return tags

    def _losses(self, given: Predictions) -> tuple[float, float]:
        """Mean loss of the calibration rows before and after, by the loss that the calibrator minimises."""
        loss = smooth_loss(getattr(self, "loss", "log"))
        return mean_loss(loss, Chain(()), given), mean_loss(loss, self.map_, given)

    def _remarks(self, noted: bool) -> list[str]:
        """Return what holds for every method: no convergence, no gain, classes without a row."""
        facts, remarks = self.diagnostics_, []
        if not noted and not facts.converged and self._warns_if_not_converged:
            remarks.append(f"{facts.method}: {facts.reason}")
        elif not noted and not facts.loss_after < facts.loss_before:
            remarks.append(
                f"{facts.method} did not lower the loss of the calibration rows: {facts.loss_before:.6g} before, "
                f"{facts.loss_after:.6g} after"
            )
        if facts.classes_never_seen:
            remarks.append(
                f"no row is labelled {_some(facts.classes_never_seen)}: their probabilities rest on the network alone"
            )
        return remarks

    def _fitted_on(self, given: Predictions) -> Self:
        self.map_ = self.map_.map_parameters(lambda value: np.asarray(value, np.float64, order="C"))
        self._know(given.logits.shape[1], given.class_names, {"glayers": version("glayers"), "numpy": np.__version__})
        if self.diagnostics_.classes_never_seen:
            unseen = _some(self.diagnostics_.classes_never_seen)
            message = f"no row is labelled {unseen}: their probabilities rest on the network alone"
            warnings.warn(message, GlayersWarning, stacklevel=4)
        return self

    def _know(self, n_logits: int, class_names: tuple[str, ...] | None, versions: dict[str, str]) -> None:
        self.n_features_in_ = n_logits
        self.classes_ = np.arange(max(2, n_logits))
        self.class_names_ = class_names
        self.versions_ = versions


def apply_map(chain: Chain, logits: Array) -> Floats:
    """Return calibrated logits (n, classes) in float64, block by block."""
    result = np.empty((len(logits), max(2, logits.shape[1])))
    for rows in row_blocks(*result.shape):
        result[rows] = with_reference_class(chain(logits[rows].astype(np.float64)))
    return result


def mean_loss(loss: SmoothLoss, chain: Chain, given: Predictions) -> float:
    """Return the weighted mean loss of what a map makes of the logits, block by block."""
    losses = np.empty(len(given))
    for rows in row_blocks(len(given), given.n_classes):
        losses[rows] = loss.rows(apply_map(chain, given.logits[rows]), given.labels[rows])
    counted = slice(None) if given.weights is None else given.weights > 0  # a row of weight 0 may have an infinite loss
    return float(np.average(losses[counted], weights=None if given.weights is None else given.weights[counted]))


@contextmanager
def needs_torch(who: str) -> Iterator[None]:
    """Name the extra to install if an import inside finds no torch; only fits need it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f'{who} needs torch to fit: pip install "glayers[fit]"', name="torch") from error


def _some(classes: tuple[int, ...]) -> str:
    names = ", ".join(map(str, classes[:5]))
    return names if len(classes) <= 5 else f"{names} and {len(classes) - 5} others"
