"""A fitted calibrator's facts -> what JSON can hold, and this with arrays by name -> the facts again, all checked.

The file around them is `artifact_file.py`; what it looks like is told in `docs/artifact.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError
from glayers.fitting.diagnostics import Diagnostics
from glayers.maps import Chain
from glayers.maps.structure import chain_of, structure_of

FORMAT = 1

# Of each fact of a fit, what it is in JSON.
_KINDS: dict[str, type[Any]] = {
    "method": str,
    "converged": bool,
    "reason": str,
    "iterations": int,
    "loss_before": float,
    "loss_after": float,
    "moved": bool,
    "rows": int,
    "labels_per_class": list,
    "classes_never_seen": list,
    "n_parameters": int,
    "seconds": float,
}


@dataclass(frozen=True)
class Artifact:
    """All that a fitted calibrator is; `settings` and `kept` hold what JSON can."""

    calibrator: str
    settings: dict[str, Any]
    chain: Chain
    n_logits: int
    class_names: tuple[str, ...] | None
    diagnostics: Diagnostics
    kept: dict[str, Any]
    versions: dict[str, str]

    def facts(self) -> dict[str, Any]:
        """Return all but the arrays as JSON has it, or say what no file can hold."""
        return {
            "format": FORMAT,
            "calibrator": self.calibrator,
            "structure": structure_of(self.chain),  # before the settings: it has the better thing to say of a q
            "settings": {name: plain(value, f"the setting {name}") for name, value in self.settings.items()},
            "n_logits": self.n_logits,
            "n_classes": max(2, self.n_logits),
            "class_names": plain(self.class_names, "class_names_"),
            "diagnostics": {name: kind(getattr(self.diagnostics, name)) for name, kind in _KINDS.items()},
            "kept": {name: plain(value, name) for name, value in self.kept.items()},
            "versions": self.versions,
        }

    def arrays(self) -> dict[str, Array]:
        """Return the parameters by name, as a file lays them out."""
        return {name: np.asarray(value, np.float64, order="C") for name, value in self.chain.parameters().items()}

    @classmethod
    def of(cls, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> "Artifact":
        """Take the facts back, and refuse whatever does not fit."""
        names = "format calibrator settings structure n_logits n_classes class_names diagnostics kept versions"
        check_names(facts, set(names.split()), "fact")
        n_logits, n_classes = (_of_kind(facts, name, int) for name in ("n_logits", "n_classes"))
        if n_logits < 1 or n_classes != max(2, n_logits):
            raise BadFile(f"{n_logits} logits and {n_classes} classes do not go together")
        # The counts of labels come first: they show that the number of classes is no mere claim.
        diagnostics = _diagnostics(_of_kind(facts, "diagnostics", dict), n_classes)
        versions = _of_kind(facts, "versions", dict)
        if versions.keys() != {"glayers", "numpy"} or not all(type(value) is str for value in versions.values()):
            raise BadFile(f"versions must be those of glayers and numpy; got {versions!r:.60}")
        return cls(
            calibrator=_of_kind(facts, "calibrator", str),
            settings=_of_kind(facts, "settings", dict),
            chain=chain_of(facts["structure"], arrays, n_logits),
            n_logits=n_logits,
            class_names=_class_names(facts["class_names"], n_classes),
            diagnostics=diagnostics,
            kept=_of_kind(facts, "kept", dict),
            versions=versions,
        )


def plain(value: object, name: str) -> Any:
    """Return a value as JSON has it, tuples and arrays as lists; or say that no file can hold it.

    >>> plain({"strength": (np.float64(0.5), 2)}, "settings")
    {'strength': [0.5, 2]}
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(each, name) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each, f"{name}, {key}") for key, each in value.items()}
    raise GlayersError(
        f"{name} is a {type(value).__name__}, and a file holds numbers, text and lists of them only. "
        f"If no more than the fit needed it, set it to None with set_params and save again"
    )


def check_names(given: Mapping[str, Any], expected: set[str], what: str) -> None:
    """Refuse a name that is missing, and one that is not known."""
    missing, unknown = sorted(expected - given.keys()), sorted(given.keys() - expected)
    if missing:
        raise BadFile(f"the {what} {missing[0]!r} is missing")
    if unknown:
        raise BadFile(f"unknown {what} {unknown[0]!r:.60}; known are {', '.join(sorted(expected)) or 'none'}")


def check_format(facts: Mapping[str, Any]) -> None:
    """Refuse facts in a format that nobody wrote yet: what they mean cannot be known."""
    number = facts.get("format")
    if type(number) is not int or number < 1:
        raise BadFile(f"its format must be a whole number from 1; got {number!r:.60}")
    if number > FORMAT:
        raise BadFile(f"has format {number}, and this glayers reads up to {FORMAT}: pip install --upgrade glayers")


def _of_kind(facts: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    if type(facts[name]) is not kind:
        raise BadFile(f"{name} must be of type {kind.__name__}; got {facts[name]!r:.60}")
    return facts[name]


def _class_names(names: object, n_classes: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if type(names) is not list or not all(type(name) is str for name in names):
        raise BadFile(f"class_names must be a list of text; got {names!r:.60}")
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise BadFile(f"class_names must be {n_classes} different names; got {len(names)}, {len(set(names))} different")
    return tuple(names)


def _diagnostics(facts: dict[str, Any], n_classes: int) -> Diagnostics:
    check_names(facts, set(_KINDS), "fact of the fit")
    values = {name: _of_kind(facts, name, kind) for name, kind in _KINDS.items()}
    counts = values["labels_per_class"]
    if len(counts) != n_classes or not all(type(count) is int and count >= 0 for count in counts):
        raise BadFile(f"labels_per_class must be {n_classes} counts; got {counts!r:.60}")
    unseen = tuple(number for number, count in enumerate(counts) if count == 0)
    if values["classes_never_seen"] != list(unseen):
        raise BadFile(f"classes_never_seen must be those without a label; got {values['classes_never_seen']!r:.60}")
    return Diagnostics(**values | {"labels_per_class": tuple(counts), "classes_never_seen": unseen})
