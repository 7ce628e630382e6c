"""A dataclass whose fields are settings -> an estimator that scikit-learn accepts, without importing scikit-learn."""

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from glayers.errors import BadPredictions, GlayersError, listed, shown
from glayers.serving import artifact


@dataclass_transform(eq_default=False)
class Estimator:
    """Base class of calibrators. Every subclass is a dataclass, without a decorator: its fields are settings.

    `clone`, pipelines and searches of scikit-learn accept it.
    """

    methods: ClassVar[tuple[Any, ...]] = ()  # each a `Method`: the entries of `CALIBRATORS` that it makes
    of_parts: ClassVar[bool] = False  # whether it consists of several fitted calibrators, its `_fitted_parts`

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False)(cls)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # learned attributes, which each fit names itself
            ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; those of a calibrator among them follow its name: `calibrator__inputs`."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        if deep:
            for name, value in list(settings.items()):
                if isinstance(value, Estimator):
                    settings |= {f"{name}__{inner}": each for inner, each in value.get_params().items()}
        return settings

    def set_params(self, **settings: Any) -> Self:
        """Change settings by name, as `get_params` names them."""
        known = self.get_params()
        for name, value in settings.items():
            if name not in known:
                raise GlayersError(f"{type(self).__name__} has no setting {name!r}; it has {listed(sorted(known), 30)}")
            owner, _, inner = name.rpartition("__")
            setattr(known[owner] if owner else self, inner, value)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator to one `.safetensors` file that `glayers.load` reads.

        The file appears complete or not at all. It holds numbers and text, never code.
        """
        from glayers.calibrators import class_of  # it imports this module

        self._check_fitted()
        artifact.save(self, path, class_of)

    def __repr__(self) -> str:
        """Name the settings that differ from their defaults."""
        settings = []
        for field in fields(self):  # type: ignore[arg-type]
            setting = getattr(self, field.name)
            value = repr(setting)
            if isfunction(setting):  # whose repr holds an address, which differs between runs
                value = setting.__name__
            if value != repr(field.default):
                settings.append(f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(settings)})"

    def __sklearn_clone__(self) -> Self:
        return clone(self)

    def __sklearn_tags__(self) -> Any:
        # Classes and probabilities make a classifier: without the tag scikit-learn scores and splits as for regression.
        from sklearn.utils import ClassifierTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            transformer_tags=TransformerTags(preserves_dtype=["float64"]),
        )

    def _fitted_parts(self) -> "Mapping[str, Estimator]":
        """Return the fitted calibrators that it consists of, by name, as a file keeps them."""
        return {}

    def _check_fitted(self) -> None:
        """Raise scikit-learn's error before a fit, where scikit-learn is installed."""
        if hasattr(self, "map_"):
            return
        message = f"this {type(self).__name__} is not fitted yet; call fit first"
        try:
            from sklearn.exceptions import NotFittedError
        except ModuleNotFoundError:
            raise GlayersError(message) from None
        raise NotFittedError(message)


_Estimator = TypeVar("_Estimator", bound=Estimator)


def clone(estimator: _Estimator) -> _Estimator:
    """Return an unfitted estimator with a copy of the same settings."""
    settings = {}
    for name, value in estimator.get_params(deep=False).items():
        try:
            settings[name] = clone(value) if isinstance(value, Estimator) else copy.deepcopy(value)
        except TypeError as problem:  # a lock, a file or a generator
            raise GlayersError(f"the setting {name}={shown(value)} cannot be copied: {problem}") from problem
    return type(estimator)(**settings)


def drawn_seed(random_state: Any) -> int:
    """Return a seed drawn from a setting of scikit-learn's kind: a whole number, a RandomState, or None."""
    try:
        generator = random_state
        if not isinstance(random_state, np.random.RandomState):
            generator = np.random.RandomState(random_state)
        return int(generator.randint(2**31 - 10))  # a fit may add a small number to it
    except (TypeError, ValueError) as error:
        raise BadPredictions(
            f"random_state must be a whole number in 0..{2**32 - 1}, a RandomState or None; got {shown(random_state)}"
        ) from error
