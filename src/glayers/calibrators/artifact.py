"""A fitted calibrator -> one `.safetensors` file, and back: arrays by name, everything else as JSON; never code.

The same calibrator gives the same bytes. `write_calibrator` refuses what `load` could not read back. `load` checks
every fact and a checksum; `serving/artifact.py` reads the part that predicting needs.
"""

import inspect
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save
from sklearn.base import clone

from glayers import calibrators
from glayers.arrays import Array
from glayers.calibrators.base import Calibrator
from glayers.calibrators.class_shift import ClassShift
from glayers.calibrators.groups import GroupCalibrator, GroupCorrection
from glayers.calibrators.multi_label import MultiLabelCalibrator
from glayers.calibrators.row_summary import RowSummary
from glayers.errors import BadFile, GlayersError, shown
from glayers.files import errors_as_bad_file, file_path, write_whole
from glayers.maps import Diagonal, Reference
from glayers.maps.layouts import structure_of
from glayers.serving.artifact import (
    CLOCK,
    DIAGNOSTICS,
    FORMAT,
    GROUPS,
    LARGEST_FILE,
    LONGEST_HEADER,
    METADATA,
    MULTI_LABEL,
    check_names,
    checksum,
    label_parts,
    learned_attributes,
    of_type,
    parts_of,
    read,
    to_json,
)

_ADAPTATION = "adaptation_"  # kept by any calibrator that was adapted


def write_calibrator(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator in one step. Refuse what a file cannot hold before anything is written."""
    name = type(calibrator).__name__
    if calibrators.CLASSES.get(name) is not type(calibrator):
        raise GlayersError(
            f"{name} is not a calibrator of glayers, so `load` could not read it: keep it in memory, "
            f"or write its numbers, `map_.parameters()`, to a file of your own"
        )
    _write(_facts_of(calibrator), arrays_of(calibrator), path)


def write_multi_label(several: MultiLabelCalibrator, path: str | os.PathLike[str]) -> None:
    """Write the calibrators of all labels to one file: their facts in a list, their arrays after the label's number."""
    fits: Any = several.calibrators_  # those of an estimator, and not only predictors
    facts = {
        "format": FORMAT,
        "calibrator": MULTI_LABEL,
        "label_names": _plain(several.label_names_, "label_names_"),
        "labels": [_facts_of(each) for each in fits],
    }
    arrays = {f"{place}/{name}": array for place, each in enumerate(fits) for name, array in arrays_of(each).items()}
    _write(facts, arrays, path)


def write_groups(fitted: GroupCalibrator, path: str | os.PathLike[str]) -> None:
    """Write a common calibrator and the corrections of groups to one file, as `write_multi_label` does."""
    fits = [fitted.common_, *fitted.corrections_.values()]
    facts = {
        "format": FORMAT,
        "calibrator": GROUPS,
        "groups": list(fitted.corrections_),
        "parts": [_facts_of(each) for each in fits],
    }
    arrays = {f"{place}/{name}": array for place, each in enumerate(fits) for name, array in arrays_of(each).items()}
    _write(facts, arrays, path)


def arrays_of(calibrator: Calibrator) -> dict[str, Array]:
    """Return the arrays of a map as a file holds them."""
    return {name: np.asarray(value, np.float64, order="C") for name, value in calibrator.map_.parameters().items()}


def _write(facts: dict[str, Any], arrays: dict[str, Array], path: str | os.PathLike[str]) -> None:
    data = save(arrays, {METADATA: to_json(facts | {"sha256": checksum(facts, arrays)})})
    try:
        estimator_of(json.loads(to_json(facts)), arrays)
    except BadFile as error:
        raise GlayersError(f"not saved, because it could not be loaded again: {error}") from error
    if int.from_bytes(data[:8], "little") > LONGEST_HEADER:
        raise GlayersError(f"settings and names take more than {LONGEST_HEADER} bytes: shorten the class names")
    if len(data) > LARGEST_FILE:
        raise GlayersError(f"the map takes more than {LARGEST_FILE} bytes: fit fewer members or smaller layers")
    write_whole(file_path(path), data)


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator as an estimator at once; `glayers.load`, which describes both, waits until one is needed."""
    where = file_path(path)
    with errors_as_bad_file(where):
        facts, arrays = read(where)
        if facts.get("calibrator") == GROUPS:
            raise BadFile("holds the calibrators of groups, which `export`, glayers.load and `apply` to one file read")
        if facts.get("calibrator") == MULTI_LABEL:
            raise BadFile(
                "holds the calibrators of several labels, which `export`, glayers.load and `apply` to one file read"
            )
        return calibrator_of(facts, arrays)


def estimator_of(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """Build the calibrator again, or that of several labels or groups."""
    if facts.get("calibrator") == GROUPS:
        return _groups_of(facts, arrays)
    if facts.get("calibrator") != MULTI_LABEL:
        return calibrator_of(facts, arrays)
    parts, names = label_parts(facts, arrays)
    fits = tuple(calibrator_of(*part) for part in parts)
    new = MultiLabelCalibrator(clone(fits[0]))
    new._set_fits(fits, names)
    return new


def _groups_of(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> GroupCalibrator:
    """Build the calibrators of groups again."""
    check_names(facts, {"format", "calibrator", "groups", "parts"}, "fact")
    groups = of_type(facts, "groups", list)
    common, *fits = (calibrator_of(*part) for part in parts_of(facts["parts"], arrays, "part"))
    if len(fits) != len(groups) or not all(isinstance(each, GroupCorrection) for each in fits):
        raise BadFile(f"{len(groups)} groups need as many corrections; got {len(fits)}")
    if any(type(name) is not str for name in groups) or any(
        each.n_features_in_ != len(common.classes_) for each in fits
    ):
        raise BadFile(f"groups must have names, and corrections {len(common.classes_)} logits")
    if any(type(each.share_) is not float or not 0 <= each.share_ <= 1 for each in fits):
        raise BadFile("the share of a correction must be a number between 0 and 1")
    new = GroupCalibrator(clone(common))
    new._set_fits(common, dict(zip(groups, fits, strict=True)))
    return new


def _facts_of(calibrator: Calibrator) -> dict[str, Any]:
    """Return everything but the arrays, ready for JSON."""
    return {
        "format": FORMAT,
        "calibrator": type(calibrator).__name__,
        "structure": structure_of(calibrator.map_),  # before the settings: its message about an activation is better
        "settings": {
            name: _plain(None if name in calibrator._only_for_fits else value, f"the setting {name}")
            for name, value in calibrator.get_params(False).items()
        },
        "n_logits": calibrator.n_features_in_,
        "n_classes": len(calibrator.classes_),
        "class_names": _plain(calibrator.class_names_, "class_names_"),
        "diagnostics": {name: kind(getattr(calibrator.diagnostics_, name)) for name, kind in DIAGNOSTICS.items()},
        "calibration_rows": calibrator.calibration_rows_.to_dict(),
        "kept": {
            name: _plain(value.to_dict() if hasattr(value, "to_dict") else value, name)
            for name in (*calibrator._kept, *([] if calibrator.adaptation_ is None else [_ADAPTATION]))
            for value in [getattr(calibrator, name)]
        },
        "versions": calibrator.versions_,
    }


def calibrator_of(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Calibrator:
    """Build the calibrator again, and refuse whatever does not fit together."""
    learned = learned_attributes(facts, arrays)
    name, settings, kept = facts["calibrator"], facts["settings"], facts["kept"]
    if name not in calibrators.CLASSES:
        raise BadFile(f"unknown calibrator {shown(name)}; known are {', '.join(sorted(calibrators.CLASSES))}")
    kind = calibrators.CLASSES[name]
    check_names(settings, set(kind._get_param_names()), f"setting of {name}")
    adapted = {_ADAPTATION} & kept.keys()
    check_names(kept, set(kind._kept) | adapted, f"kept attribute of {name}")
    records = {each: record.from_dict(kept[each]) for each, record in kind._records.items()}
    if adapted:
        records[_ADAPTATION] = ClassShift.from_dict(kept[_ADAPTATION], facts["n_classes"])
        if [type(step) for step in learned["map_"].steps[-2:]] != [Reference, Diagonal]:
            raise BadFile("its map does not end with the two steps of an adaptation")
    new = kind(**settings)
    summary = RowSummary.from_dict(facts["calibration_rows"], facts["n_classes"])
    found = {**learned, "calibration_rows_": summary, _ADAPTATION: None, **kept, **records}
    for attribute, value in found.items():
        setattr(new, attribute, value)
    _check_derived(new)
    return new


def _check_derived(calibrator: Calibrator) -> None:
    """Refuse a map without what the attributes of its class are computed from, such as a temperature."""
    for attribute in dir(type(calibrator)):
        if attribute.endswith("_") and isinstance(inspect.getattr_static(type(calibrator), attribute), property):
            try:
                getattr(calibrator, attribute)
            except (ArithmeticError, LookupError, TypeError) as error:
                name = type(calibrator).__name__
                raise BadFile(f"its map is not one of {name}, which has the attribute {attribute}") from error


def _plain(value: object, name: str) -> Any:
    """Return a value as JSON has it, tuples and arrays as lists, or raise an error if a file cannot hold it.

    >>> _plain({"strength": (np.float64(0.5), 2)}, "settings")
    {'strength': [0.5, 2]}
    """
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist(), name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each, f"{name}, {key}") for key, each in value.items() if key != CLOCK}
    raise GlayersError(
        f"{name} is a {type(value).__name__}, and a file holds only numbers, text and lists of them. "
        f"If only the fit needed it, set it to None with set_params and save again"
    )
