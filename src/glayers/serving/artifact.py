"""A fitted calibrator <-> one `.safetensors` file: a tree of calibrators as JSON, and their arrays; never code.

The same calibrator gives the same bytes. `save` refuses what `load` could not read back; `load` checks a checksum, the
class, its settings, and that the map works: STEPS lists the steps that a file may hold, and no others. A file is read
at once and never mapped into memory: a mapped file that somebody cuts short would end the process.
`docs/reference/artifact.md` describes the format.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, BinaryIO, TypeAlias, TypeVar, get_args

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save as to_safetensors

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.checks import check_choice, check_class_names
from glayers.errors import BadFile, GlayersError, listed, shown
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular, write_whole
from glayers.maps.steps import Chain, EachColumn, Step, arrays_of
from glayers.serving.predictor import CHECKS, Diagnostics

FORMAT = 1
POSTERIOR = "posterior."  # how the names of the arrays of a posterior begin
METADATA = "glayers"  # one entry for all facts: safetensors does not keep the order of several
_Record = TypeVar("_Record")
FindClass: TypeAlias = Callable[[str], Any]  # a class by its name, or None


def save(fitted: Any, path: str | os.PathLike[str], find: FindClass) -> None:
    """Write a fitted calibrator in one step. Refuse what a file cannot hold before anything is written."""
    contents, arrays = _contents(fitted, find)
    facts = {"format": FORMAT} | contents
    data = to_safetensors(arrays, {METADATA: _to_json(facts | {"sha256": checksum(facts, arrays)})})
    try:
        _built(json.loads(_to_json(facts)), arrays, find)
    except GlayersError as error:
        raise GlayersError(f"not saved, because it could not be loaded again: {error}") from error
    write_whole(file_path(path), data)


def load(path: str | os.PathLike[str], find: FindClass) -> Any:
    """Read a calibrator; `glayers.load` describes it. `find` returns the class of a name that a file may have."""
    where = file_path(path)
    with errors_as_bad_file(where):
        with open_regular(where) as stream:
            facts = _facts_in(stream)
            stream.seek(0)
            arrays = _arrays_in(stream.read())
        number = facts.get("format")
        if number != FORMAT:
            raise BadFile(
                f"has format {shown(number)}, and this glayers reads format {FORMAT}: pip install --upgrade glayers"
            )
        if facts.pop("sha256", None) != checksum(facts, arrays):
            raise BadFile(f"its contents do not match their checksum; {DAMAGED}")
        return _built(facts, arrays, find)


def file_name(kind: type) -> str:
    """Return the name of a class in files: of another package, also its module."""
    return kind.__name__ if kind.__module__.startswith("glayers.") else f"{kind.__module__}.{kind.__qualname__}"


def _name_of_kind(fitted: Any, find: FindClass) -> str:
    """Return the name of a calibrator's class in files, by which `load` finds it."""
    kind = type(fitted)
    name = file_name(kind)
    if find(name) is kind:
        return name
    if kind.of_parts:
        raise GlayersError(f"{kind.__name__} is a class of your own, which `load` would not find: save its parts")
    raise GlayersError(
        f"{kind.__name__} is not registered, so `load` would not find it: call glayers.register({kind.__name__}), "
        f"also before `load`, or declare it as an entry point of the group glayers.calibrators"
    )


def _contents(fitted: Any, find: FindClass) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the facts and the arrays of a calibrator, those of its parts under their names."""
    parts = fitted._fitted_parts()
    if not parts:
        parameters = fitted.map_.parameters() | fitted._posterior_arrays()
        of_map = {name: np.asarray(value, np.float64, order="C") for name, value in parameters.items()}
        return _facts_of(fitted, find), of_map
    facts = {}
    arrays: dict[str, Array] = {}
    for name, part in parts.items():
        facts[name], own = _contents(part, find)
        arrays |= {f"{name}/{inner}": array for inner, array in own.items()}
    names = _plain(fitted.class_names_, "class_names_")
    return {"calibrator": _name_of_kind(fitted, find), "class_names": names, "parts": facts}, arrays


def checksum(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of all facts and arrays of a file."""
    digest = hashlib.sha256(_to_json(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def decoded(kind: type[_Record], facts: Any) -> _Record:
    """Return the dataclass whose fields a JSON object holds: lists become tuples, and objects the declared records."""
    declared = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: _frozen(value, declared[name]) for name, value in facts.items()})
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise BadFile(f"{kind.__name__}: an entry is missing, unknown or odd: {error}") from error


def _frozen(value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(each, get_args(kind)[0]) for each in value)
    if is_dataclass(kind):
        return decoded(kind, value)  # type: ignore[arg-type]
    if isinstance(value, dict):
        return {name: _frozen(each, get_args(kind)[1]) for name, each in value.items()}
    return value


def _facts_of(fitted: Any, find: FindClass) -> dict[str, Any]:
    """Return everything but the arrays of a calibrator with a map of its own, ready for JSON."""
    structure = structure_of(fitted.map_)  # before the settings: its message about an activation is better
    name_of_kind = _name_of_kind(fitted, find)
    settings = fitted.get_params(deep=False) | dict.fromkeys(fitted._only_for_fits)
    kept = {name: getattr(fitted, name) for name in fitted._kept}
    for name in fitted._records:
        if getattr(fitted, name) is not None:
            kept[name] = asdict(getattr(fitted, name))
    facts = {
        "calibrator": name_of_kind,
        "settings": {name: _plain(value, f"the setting {name}") for name, value in settings.items()},
        "structure": structure,
        "n_logits": fitted.n_features_in_,
        "n_classes": len(fitted.classes_),
        "class_names": _plain(fitted.class_names_, "class_names_"),
        "diagnostics": _plain(asdict(fitted.diagnostics_), "diagnostics_"),
        "kept": {name: _plain(value, name) for name, value in kept.items()},
        "versions": fitted.versions_,
    }
    if fitted.classes_.dtype.kind == "U":
        facts["predicts"] = "names"
    return facts


def _built(facts: Mapping[str, Any], arrays: Mapping[str, Array], find: FindClass) -> Any:
    """Build the calibrator of a file again, and refuse whatever does not fit together."""
    kind = find(facts["calibrator"])
    if kind is None or kind.of_parts != ("parts" in facts):
        raise BadFile(
            f"unknown calibrator {shown(facts['calibrator'])}: another version of glayers wrote the file, or a package "
            f"that is not here; install it, or import your module that registers it, before `load`"
        )
    if not kind.of_parts:
        return _calibrator(kind, facts, arrays)
    arrays_of_parts: dict[str, dict[str, Array]] = {name: {} for name in facts["parts"]}
    for full, array in arrays.items():
        part, _, name = full.rpartition("/")
        arrays_of_parts[part][name] = array
    new = kind._from_parts({name: _built(facts["parts"][name], own, find) for name, own in arrays_of_parts.items()})
    new.class_names_ = check_class_names(facts["class_names"], len(new.classes_))
    return new


def _calibrator(kind: Any, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    """Build a calibrator with a map of its own."""
    settings = facts["settings"]
    names = {field.name for field in fields(kind)}
    if settings.keys() != names:
        raise BadFile(f"{kind.__name__} has the settings {listed(sorted(names))}; the file has {listed(settings)}")
    check_choice(settings["inputs"], CHECKS, "the setting inputs")
    new = kind(**settings)
    new.diagnostics_ = decoded(Diagnostics, facts["diagnostics"])
    n_logits = facts["n_logits"]
    n_classes = facts["n_classes"]
    # Before anything is made for each class: the file is really about so many classes.
    if n_classes != max(2, n_logits) or len(new.diagnostics_.labels_per_class) != n_classes:
        raise BadFile(f"{n_logits} logits, {n_classes} classes and its label counts do not go together")
    new.n_features_in_ = n_logits
    new.classes_ = np.arange(n_classes)
    new.class_names_ = check_class_names(facts["class_names"], n_classes)
    if facts.get("predicts") == "names" and new.class_names_:
        new.classes_ = np.array(new.class_names_)
    new.versions_ = facts["versions"]
    of_map = {name: array for name, array in arrays.items() if not name.startswith(POSTERIOR)}
    new.map_ = chain_of(facts["structure"], of_map, n_logits)
    new._set_posterior({name: array for name, array in arrays.items() if name not in of_map})
    kept = {"adaptation_": None, "set_thresholds_": None} | facts["kept"]  # which not every calibrator has
    for name in kind._kept:
        setattr(new, name, kept[name])
    for name, record in kind._records.items():
        setattr(new, name, None if kept[name] is None else decoded(record, kept[name]))
    new._check_loaded()
    return new


def _plain(value: object, name: str) -> Any:
    """Return a value as JSON has it, tuples and arrays as lists, or raise an error if a file cannot hold it.

    >>> _plain({"strength": (np.float64(0.5), 2)}, "settings")
    {'strength': [0.5, 2]}
    """
    try:
        text = json.dumps(value, default=lambda array: array.tolist())
        return json.loads(text, object_hook=_without_clock)
    except (AttributeError, TypeError, ValueError) as error:
        raise GlayersError(
            f"{name} is a {type(value).__name__}, and a file holds only numbers, text and lists of them. "
            f"If only the fit needed it, set it to None with set_params and save again"
        ) from error


def _without_clock(entries: dict[str, Any]) -> dict[str, Any]:
    entries.pop("seconds", None)  # never saved: it differs between runs of the same fit
    return entries


def _to_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))


def _arrays_in(data: bytes) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, tensor in deserialize(data):  # type: ignore[no-untyped-call]  # checks names, types and sizes
        if tensor["dtype"] != "F64":
            raise BadFile(f"the array {shown(name)} must be of type F64; it is {tensor['dtype']}")
        arrays[name] = np.frombuffer(tensor["data"], "<f8").reshape(tensor["shape"]).astype(np.float64)
    return arrays


def _facts_in(stream: BinaryIO) -> dict[str, Any]:
    """Return the facts in the header of a file. Of a file that is not ours, such as a network, read no more."""
    size = os.fstat(stream.fileno()).st_size
    length = int.from_bytes(stream.read(8), "little")
    if length > size - 8:
        raise BadFile("is not a calibrator: give a file that `glayers fit` or `save` wrote")
    header = json.loads(stream.read(length).decode(errors="replace"))  # a damaged name does not match the checksum
    try:
        facts = json.loads(header["__metadata__"][METADATA])
    except (KeyError, TypeError):
        facts = None
    if type(facts) is not dict:
        raise BadFile("is a safetensors file, but not a calibrator of glayers; load it with the tool that wrote it")
    check_size(size)
    return facts


# The steps of glayers; a fitted map is one chain, with others only in branches.
STEPS: dict[str, type[Step]] = {
    kind.__name__: kind
    for kind in Step.__subclasses__()
    if kind.__module__.startswith("glayers.maps.") and kind not in (Chain, EachColumn)
}


def structure_of(chain: Chain) -> list[Any]:
    """Return the names of the steps in order; a step with branches is {name: list of structures}.

    >>> from glayers.maps import Reference, Scale
    >>> structure_of(Chain((Reference(), Scale(np.ones(())))))
    ['Reference', 'Scale']
    """
    structure: list[Any] = []
    for step in chain.steps:
        name = type(step).__name__
        if STEPS.get(name) is not type(step):
            raise GlayersError(
                f"{name} cannot be saved: a file holds steps of glayers, and never code or objects of other libraries"
            )
        if hasattr(step, "branches"):
            structure.append({name: [structure_of(branch) for branch in step.chains()]})
        else:
            structure.append(name)
    return structure


def chain_of(structure: Any, arrays: Mapping[str, Array], n_logits: int) -> Chain:
    """Return the chain of this structure with these parameters, or raise an error that says what does not fit.

    >>> chain_of(["Scale"], {"0.factor": np.array(0.5)}, n_logits=3)(np.array([[2.0, 0.0, 4.0]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    chain = _chain(structure, arrays, "")
    extra = sorted(arrays.keys() - chain.parameters().keys())
    if extra:
        raise BadFile(f"no step has an array {extra[0]!r}")
    factors = np.array([0.0, 1.0, -1.0, 1e4, -1e4])
    rows = np.linspace(-1.0, 1.0, n_logits) * factors[:, None]
    try:
        with np.errstate(all="ignore"):
            tried = with_reference_class(chain(rows))
    except (IndexError, ValueError) as error:
        raise BadFile(f"the arrays of the map do not fit together: {error}") from error
    if tried.shape != (len(rows), max(2, n_logits)):
        raise BadFile(f"the map turns {n_logits} logits into an array of shape {tried.shape[1:]}")
    if not np.isfinite(tried).all():
        raise BadFile("the map turns finite logits into numbers that are not finite")
    return chain


def _chain(structure: Any, arrays: Mapping[str, Array], prefix: str) -> Chain:
    """Return the chain whose arrays have this prefix. Only in a branch may arrays have a members axis."""
    steps = []
    for place, entry in enumerate(structure):
        name = entry
        parts: dict[str, Any] = {}
        start = f"{prefix}{place}."
        if isinstance(entry, dict):
            ((name, inner),) = entry.items()
            parts["branches"] = tuple(
                _chain(each, arrays, f"{start}branches.{number}.") for number, each in enumerate(inner)
            )
        if name not in STEPS:
            raise BadFile(f"unknown step {shown(name)}; known are {', '.join(sorted(STEPS))}")
        for array, layout in arrays_of(STEPS[name]).items():
            if start + array not in arrays:
                raise BadFile(f"the array {start + array!r} is missing")
            value = arrays[start + array]
            n_members = value.ndim - layout.n_axes
            if n_members not in (0, int(prefix != "")) or not np.isfinite(value).all():
                raise BadFile(f"{start}{array} must hold finite numbers of shape ({layout.axes}); it is {value.shape}")
            parts[array] = value
        steps.append(STEPS[name](**parts))
    return Chain(tuple(steps))
