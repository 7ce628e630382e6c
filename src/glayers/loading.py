"""A file -> a calibrator that predicts at once, and becomes the full estimator when somebody asks for more."""

import os
import sys
from typing import TYPE_CHECKING, Any, cast

from glayers.files import errors_as_bad_file, file_path
from glayers.serving.artifact import GROUPS, MULTI_LABEL, label_parts, learned_attributes, read
from glayers.serving.predictor import LabelPredictor, Predictor

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator


def load(path: str | os.PathLike[str]) -> "Calibrator":
    """Read a calibrator that `Calibrator.save` wrote. It predicts the same bytes, without torch.

    Loading and predicting import NumPy and safetensors only. The first use of anything else, such as `fit`,
    `get_params` or `save`, imports scikit-learn and turns the object into the estimator that was saved.

    Parameters
    ----------
    path : str or path-like
        The `.safetensors` file.

    Returns
    -------
    Calibrator
        The fitted calibrator, of the class that was saved.

    Raises
    ------
    BadFile
        If the file is missing, damaged, edited or not written by glayers. Nothing in a file is ever executed.

    Examples
    --------
    >>> import tempfile
    >>> from glayers import TemperatureScaling
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/t.safetensors")
    ...     load(f"{folder}/t.safetensors").temperature_ == fitted.temperature_
    True
    """
    where = file_path(path)
    with errors_as_bad_file(where):
        facts, arrays = read(where)
        if "glayers.calibrators" in sys.modules or facts.get("calibrator") == GROUPS:  # no import to put off
            from glayers.calibrators.artifact import estimator_of

            return cast("Calibrator", estimator_of(facts, arrays))
        several = facts.get("calibrator") == MULTI_LABEL
        return cast("Calibrator", (LoadedLabels if several else LoadedCalibrator)(facts, arrays))


class _Loaded:
    """Something from a file, before anything but predicting was asked of it; it then becomes what was saved."""

    def __getattr__(self, name: str) -> Any:
        """Become the full estimator, which has every other attribute."""
        if name.startswith("__") and not name.startswith("__sklearn"):
            raise AttributeError(name)  # a protocol of Python that other libraries look for
        return getattr(self._become_estimator(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._become_estimator(), name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that was saved, once somebody can name it: `isinstance` is right, and never imports anything."""
        known = sys.modules.get("glayers.calibrators")
        return getattr(known, vars(self)["_facts"]["calibrator"], type(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (vars(self)["_facts"], vars(self)["_arrays"])

    def __repr__(self) -> str:
        return f"<{vars(self)['_facts']['calibrator']}, loaded from a file>"

    def _become_estimator(self) -> "Calibrator":
        try:
            from glayers.calibrators.artifact import estimator_of
        except ModuleNotFoundError as error:
            needed = f"only predicting works without {error.name}: install glayers with its dependencies"
            raise ModuleNotFoundError(needed, name=error.name) from error
        held = vars(self)
        full = estimator_of(held["_facts"], held["_arrays"])
        held.clear()
        held.update(vars(full))
        vars(object)["__class__"].__set__(self, type(full))
        return cast("Calibrator", self)


class LoadedCalibrator(_Loaded, Predictor):
    """A calibrator from a file.

    Parameters
    ----------
    facts, arrays
        The contents of the file.
    """

    def __init__(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        vars(self).update(learned_attributes(facts, arrays), _facts=facts, _arrays=arrays)


class LoadedLabels(_Loaded, LabelPredictor):
    """The calibrators of several labels from a file.

    Parameters
    ----------
    facts, arrays
        The contents of the file.
    """

    def __init__(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        parts, names = label_parts(facts, arrays)
        fits = tuple(LoadedCalibrator(*part) for part in parts)
        vars(self).update(calibrators_=fits, label_names_=names, n_features_in_=len(fits))
        vars(self).update(_facts=facts, _arrays=arrays)
