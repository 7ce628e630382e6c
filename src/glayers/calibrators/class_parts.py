"""Held-out rows -> what is fitted class by class before the shared correction, with predictions made out of fold.

`CLASS_PARTS` names the choices; each ends in log-probabilities, and each row's out-of-fold ones come from a fit that
had not seen it.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats
from glayers.calibrators.base import Calibrator, apply_map
from glayers.calibrators.linear import MatrixScaling, VectorScaling
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

# Multiples of vector scaling's prior, from strong to weak; the first to be worse than the one before ends the search.
_STRENGTHS = (1.0, 0.1, 0.01)
_LARGE = 5_000_000  # logits: from here on a fit takes seconds, and three folds must do
# Weights x rows of g-layers up to which folds are drawn twice; beyond, that takes a minute or more.
_REPEATED, _REPEATS = 1e9, 2


class Options(NamedTuple):
    """What every part is told: the loss, the number of folds, the seed, and settings of the part's own."""

    loss: str = "log"
    n_folds: int = 5
    seed: int = 0
    settings: Mapping[str, Any] = {}


class ClassPart(NamedTuple):
    """Logits to log-probabilities, those of every row out of fold, and what the fit has to say."""

    chain: Chain
    out_of_fold: Floats
    n_parameters: int
    converged: bool
    reason: str


def temperature_part(given: Predictions, options: Options) -> ClassPart:
    """One factor."""
    whole = fit_inverse_temperature(given.logits, given.labels, given.weights)
    folds = assign_folds(len(given), given.groups, options.n_folds, options.seed)
    result = np.empty((len(given), given.n_classes))
    for fold in range(int(folds.max()) + 1):
        mine, factor = folds == fold, whole.factor
        # Weights that sit on one fold leave the others nothing to learn from.
        if given.weights is None or given.weights[~mine].any():
            others = given.take(~mine)
            factor = fit_inverse_temperature(others.logits, others.labels, others.weights, factor).factor
        result[mine] = log_softmax(apply_map(scaled(factor), given.logits[mine]))
    return ClassPart(scaled(whole.factor), result, 1, whole.converged, whole.reason or "converged")


def vector_part(given: Predictions, options: Options) -> ClassPart:
    """A scale and a shift for each class, at the strength of least held-out loss: cheap, however many classes."""
    n_folds = options.n_folds if given.logits.size <= _LARGE else min(3, options.n_folds)
    folds = assign_folds(len(given), given.groups, n_folds, options.seed)
    best, least, held_out = _STRENGTHS[0], math.inf, np.empty((0, 0))
    for strength in _STRENGTHS:
        result = np.empty((len(given), given.n_classes))
        for fold in range(int(folds.max()) + 1):
            mine = folds == fold
            fitted = _quietly(VectorScaling(strength, loss=_known(options.loss)), given.take(~mine))
            result[mine] = log_softmax(apply_map(fitted.map_, given.logits[mine]))
        loss = float(np.average(smooth_loss(options.loss).rows(result, given.labels), weights=given.weights))
        if not loss < least:
            break
        best, least, held_out = strength, loss, result
    return _part(_quietly(VectorScaling(best, loss=_known(options.loss)), given), held_out)


def matrix_part(given: Predictions, options: Options) -> ClassPart:
    """A full matrix with the structured penalty."""
    matrix = MatrixScaling(loss=_known(options.loss), n_folds=options.n_folds, random_state=options.seed)
    fitted = _quietly(matrix, given)
    return _part(fitted, np.asarray(fitted.out_of_fold_))


def g_layers_part(given: Predictions, options: Options) -> ClassPart:
    """The paper's dense layers."""
    from glayers.calibrators.g_layers import GLayers

    chosen: dict[str, Any] = {"loss": options.loss, "random_state": options.seed, "progress": False}
    if options.settings.get("recipe", "default") == "default":
        chosen["n_repeats"] = n_repeats(len(given), given.n_classes)
    chosen |= options.settings
    fitted = _quietly(GLayers(**chosen), given)
    if not len(fitted.out_of_fold_):
        raise GlayersError("settings leave GLayers without cross-validation, which the shared correction needs")
    return _part(fitted, log_softmax(with_reference_class(fitted.out_of_fold_)))


def n_repeats(rows: int, classes: int) -> int:
    """How often g-layers draw their folds here.

    >>> n_repeats(5_000, 200), n_repeats(25_000, 1_000)
    (2, 1)
    """
    return _REPEATS if 4 * rows * classes**2 <= _REPEATED else 1


CLASS_PARTS: dict[str, Callable[[Predictions, Options], ClassPart]] = {
    "temperature": temperature_part,
    "vector": vector_part,
    "matrix": matrix_part,
    "g-layers": g_layers_part,
}


def scaled(factor: float) -> Chain:
    """Return log-probabilities at an inverse temperature."""
    return Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))


def _quietly(calibrator: Calibrator, given: Predictions) -> Any:
    """Fit; what the part has to say is in its diagnostics, and whoever asked for it says it once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        return calibrator.fit_predictions(given)


def _part(fitted: Calibrator, out_of_fold: Floats) -> ClassPart:
    facts = fitted.diagnostics_
    chain = fitted.map_ + Chain((LogSoftmax(),))
    return ClassPart(chain, out_of_fold, facts.n_parameters, facts.converged, facts.reason)


def _known(loss: str) -> Any:
    return loss
