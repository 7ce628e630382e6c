"""Contents of a file: what its names mean, the record they fill, and `.npz`, `.npy` and `.json` files <-> that record.

Nothing is unpickled, and every size is checked before the data are read.
"""

import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.errors import listed as listed  # which messages about files use
from glayers.files import DAMAGED, Room

# The first word is the field's own name; the reader accepts the others too.
FIELD_WORDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit", "z"),
    "probabilities": ("probabilities", "probs", "proba", "p"),
    "confidence": ("confidence", "confidences"),
    "correct": ("correct",),
    "labels": ("labels", "label", "y", "y_true", "targets", "target"),
    "weights": ("weights", "weight", "sample_weight"),
    "groups": ("groups", "group"),
    "counts": ("counts", "count"),
    "class_names": ("class_names",),
}
PART_WORDS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("calibration", "calib", "cal", "validation", "valid", "val"),
    "test": ("test",),
}
WHOLE_FILE = "all"
ARCHIVE_KEYS = {word: (WHOLE_FILE, field) for field, words in FIELD_WORDS.items() for word in words}
ARCHIVE_KEYS |= {
    key: (part, field)
    for part, marks in PART_WORDS.items()
    for mark in marks
    for word, (_, field) in ARCHIVE_KEYS.items()
    for key in (f"{mark}_{word}", f"{word}_{mark}")
}
_HEADER_LIMIT = 65_536  # NumPy itself refuses headers past 10,000 characters
# A header is a dict as Python prints it. NumPy's own reader changes the warning filters of the whole process.
_HEADER = {
    "descr": re.compile(r"['\"]descr['\"]: *['\"]([<>=|]?[?biufcmMOSUV][0-9]*(?:\[[0-9]*\w+\])?)['\"]"),
    "fortran_order": re.compile(r"['\"]fortran_order['\"]: *(True|False)"),
    "shape": re.compile(r"['\"]shape['\"]: *\(((?:-?[0-9]{1,30}L?,? *)*)\)"),
}
_DEFLATE_LIMIT = 1032  # two bits of a DEFLATE stream give at most 258 bytes
_LAST_CHARACTER = 0x10FFFF  # of Unicode; NumPy accepts any four bytes until the text is used
JSON_VALUE = 72  # bytes: more than a float in a list takes, or an empty list
_PADDING = 64  # an array of text holds every name at the length of the longest; longer than this many times is refused

_SCORES = ("logits", "probabilities")  # of every class; logits are read if both are there


@dataclass(frozen=True, eq=False)
class Contents:
    """The fields of one part of a file: read but not yet checked, or about to be written.

    A part has logits, or probabilities, or confidence and correct; readers drop probabilities beside logits.
    `no_labels` is the message for a caller who needs labels that the file does not have. Only new rows, which a
    calibrator is applied to, need neither labels nor correct.
    """

    logits: Array | None = None
    probabilities: Array | None = None
    confidence: Array | None = None
    correct: Array | None = None
    labels: Array | None = None
    weights: Array | None = None
    groups: Array | None = None
    counts: Array | None = None
    class_names: tuple[str, ...] | None = None
    no_labels: str = ""

    def __len__(self) -> int:
        return next(len(each) for each in (self.logits, self.probabilities, self.confidence) if each is not None)


def contents_by_part(
    keys: Iterable[str], known: Mapping[str, tuple[str, str]], read: Callable[[dict[str, str]], dict[str, Any]]
) -> dict[str, Contents]:
    """Read every part of a file by its keys.

    `known` gives the part and the field of a key; other keys are left out. `read` takes the key of each field of one
    part and returns their values.

    >>> keys = {"z_test": ("test", "logits"), "y_test": ("test", "labels")}
    >>> contents_by_part(["z_test", "y_test", "date"], keys, lambda key_of: key_of)["test"].labels
    'y_test'
    """
    found, parts = list(keys), dict[str, dict[str, list[str]]]()
    for key in found:
        if key in known:
            part, field = known[key]
            parts.setdefault(part, {}).setdefault(field, []).append(key)
    shared = _take_shared_names(parts)
    contents = {}
    for part in sorted(parts) or [WHOLE_FILE]:  # calibration before test
        key_of = _chosen_keys(shared | parts.get(part, {}), _missing(part, found, known, *_SCORES))
        contents[part] = Contents(**read(key_of), no_labels=_missing(part, found, known, "labels"))
    return contents


def _missing(part: str, found: Iterable[str], known: Mapping[str, tuple[str, str]], *fields: str) -> str:
    of_part = "" if part == WHOLE_FILE else f" of the part {part}"
    words = [key for key, place in known.items() if place in [(WHOLE_FILE, field) for field in fields]]
    what = " or ".join(fields)
    return f"no {what}{of_part}: found {listed(found)}; expected one of these keys or column headers: {listed(words)}"


def _take_shared_names(parts: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Remove and return class names without a part: they apply to every part without names of its own."""
    if len(parts) == 1 or WHOLE_FILE not in parts:
        return {}
    whole = parts.pop(WHOLE_FILE)
    others = [key for field, keys in whole.items() if field != "class_names" for key in keys]
    if others:
        raise BadFile(
            f"{listed(others)} name no part, but other keys belong to {listed(parts)}; "
            f"give every key its part, such as {others[0]}_test, or none"
        )
    return whole


def _chosen_keys(fields: dict[str, list[str]], no_scores: str) -> dict[str, str]:
    """Return the key of each field to read: logits rather than probabilities, or else confidence and correct."""
    scores = next((field for field in _SCORES if field in fields), None)
    has_pair = "confidence" in fields and "correct" in fields
    if scores is None and "confidence" not in fields:
        raise BadFile(f"{no_scores}, and labels; or both confidence and correct")
    if scores is not None and has_pair:  # they could describe different predictions
        pair = f"{fields['confidence'][0]} and {fields['correct'][0]}"
        raise BadFile(f"has {scores} as well as {pair}; keep {scores} and labels to use all classes, or keep {pair}")
    unread = {"labels", "class_names"} if scores is None else {*_SCORES, "confidence", "correct"} - {scores}
    chosen = {field: keys for field, keys in fields.items() if field not in unread}
    for field, keys in chosen.items():
        if len(keys) > 1:
            raise BadFile(f"both {keys[0]!r} and {keys[1]!r} are {field}; keep one of them")
    return {field: key for field, (key,) in chosen.items()}


def read_npz(path: Path, room: Room) -> dict[str, Contents]:
    """Read every part of a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        keys = [member.filename.removesuffix(".npy") for member in archive.infolist()]
        members = dict(zip(keys, archive.infolist(), strict=True))
        return _read_archive(keys, lambda key: _read_member(archive, members[key], room))


def read_npy(path: Path, room: Room) -> dict[str, Contents]:
    """Read the one array of a `.npy` file as logits."""
    no_labels = (
        "a .npy file holds logits alone; give labels too: labels=, on the command line --labels labels.npy. "
        "compare and report need both in one file: np.savez('rows.npz', logits=..., labels=...)"
    )
    with path.open("rb") as stream:
        return {WHOLE_FILE: Contents(logits=_read_array(stream, path.stat().st_size, room), no_labels=no_labels)}


def read_json(path: Path, room: Room) -> dict[str, Contents]:
    """Read every part of a JSON object with the keys of an `.npz` and lists as arrays."""
    room.take(path.stat().st_size)
    data = path.read_bytes()
    room.take(JSON_VALUE * sum(map(data.count, (b",", b"[", b"{"))))
    try:
        stored = json.loads(data, object_pairs_hook=without_repeats)
    except BadFile:
        raise
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    return _read_archive(stored, stored.__getitem__)


def npz_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **{key: _plain_text(key, array) for key, array in _arrays_by_key(parts).items()})
    return stream.getvalue()


def json_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    return (json.dumps({key: array.tolist() for key, array in _arrays_by_key(parts).items()}) + "\n").encode()


def array_from_bytes(data: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> Array:
    """Return bytes from a file as an array in this machine's byte order; `order` is "C" or "F"."""
    check_size(dtype, shape, len(data))
    array: Array = np.ndarray(shape, dtype, buffer=data, order="F" if order == "F" else "C")
    if dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1; a file need not
    if dtype.kind == "U":
        characters = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder))
        if (characters > _LAST_CHARACTER).any():
            raise BadFile(f"holds text with characters that do not exist; {DAMAGED}")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def check_size(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> None:
    """Refuse dtypes that are not numbers or text, and shapes that do not take exactly `n_bytes`."""
    if dtype.hasobject:
        raise BadFile(
            "holds an array of Python objects, which only pickle could read, and pickle can run any code; "
            "save plain numbers instead, for example np.array(values, dtype=float)"
        )
    if dtype.kind not in "biufUS" or dtype.itemsize == 0:
        raise BadFile(f"holds an array of {dtype}; save plain numbers, or text for names and groups")
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != n_bytes:
        raise BadFile(f"an array of shape {shape} and {dtype} takes {expected} bytes, not {n_bytes}; {DAMAGED}")


def _read_archive(keys: Iterable[str], stored: Callable[[str], Any]) -> dict[str, Contents]:
    def read(key_of: dict[str, str]) -> dict[str, Any]:
        readers = {"class_names": class_names_in, "groups": groups_in}
        return {field: readers.get(field, _array)(key, stored(key)) for field, key in key_of.items()}

    return contents_by_part(sorted(keys), ARCHIVE_KEYS, read)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: Room) -> Array:
    with open_member(archive, member) as stream:
        return _read_array(stream, member.file_size, room)


def open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Open one array of an archive, after checking that it can be as large as it claims."""
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATE_LIMIT}.get(member.compress_type)
    if most is None:
        raise BadFile(f"{member.filename} is compressed in a way NumPy does not write; save with np.savez_compressed")
    if member.file_size > most * member.compress_size:
        raise BadFile(f"{member.filename} claims {member.file_size} bytes, more than it can unpack to; {DAMAGED}")
    return archive.open(member)


def _read_array(stream: IO[bytes], size: int, room: Room) -> Array:
    """Read an array from a stream of `size` bytes, checking the size before reading the data."""
    room.take(size)
    dtype, shape, order, start = read_header(stream, size)
    return array_from_bytes(start + stream.read(), dtype, shape, order)


def read_header(stream: IO[bytes], size: int) -> tuple[np.dtype[Any], tuple[int, ...], str, bytes]:
    """Read dtype, shape and order ("C" or "F") of an array, and the first bytes of its data, and check its size."""
    start = stream.read(_HEADER_LIMIT)
    header = io.BytesIO(start)
    version = np.lib.format.read_magic(header)
    if version not in ((1, 0), (2, 0)):
        raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
    length = int.from_bytes(header.read(2 * version[0]), "little")
    text = header.read(length).decode("latin-1")
    found = {name: pattern.search(text) for name, pattern in _HEADER.items()}
    if not found["descr"] and re.search(r"descr.: *\[", text):
        raise BadFile("holds an array of records; save plain numbers, or text for names and groups")
    if not all(found.values()) or length > _HEADER_LIMIT:
        raise BadFile(f"holds an array with a header that NumPy does not write; {DAMAGED}")
    descr, order, sides = (match[1] for match in found.values() if match)
    shape, dtype = tuple(map(int, re.findall("-?[0-9]+", sides))), np.dtype(descr)
    check_size(dtype, shape, size - header.tell())
    return dtype, shape, "F" if order == "True" else "C", start[header.tell() :]


def class_names_in(key: str, values: object) -> tuple[str, ...]:
    """Return a list of text as class names."""
    names = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(names, list):
        names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFile(f"{key} must be a list of text, one name per class; got {shown(names)}")
    return tuple(names)


def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict, refusing a repeated key, of which json would keep only the last value."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise BadFile(f"holds the key {shown(key)} twice; remove one of them")
        found[key] = value
    return found


def _array(key: str, values: object) -> Array:
    if isinstance(values, np.ndarray):
        return values
    if not isinstance(values, list):
        raise BadFile(f"{key} must be a list; got {shown(values)}")
    _refuse_text(key, values)
    try:
        return np.array(values)
    except ValueError as error:
        raise BadFile(f"{key} must have rows of equal length, all of them numbers ({error})") from error


def _refuse_text(key: str, values: list[Any]) -> None:
    """Refuse text in lists of numbers: NumPy would store every number at the length of the longest text."""
    for value in values:
        if isinstance(value, list):
            _refuse_text(key, value)
        elif isinstance(value, str):
            raise BadFile(f"{key} must be real numbers; got the text {shown(value)}")


def groups_in(key: str, values: object) -> Array:
    """Return groups as every format can hold them: bytes and very long whole numbers as text, floats as float64."""
    if isinstance(values, np.ndarray) and values.dtype.kind != "S":
        narrow = values.astype(np.float64) if values.dtype == np.longdouble else values
        if (narrow != values).any():
            raise BadFile(f"{key} holds numbers with more digits than float64 has; save them as text")
        return narrow
    listed_values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(listed_values, list) or any(isinstance(value, list | dict | None) for value in listed_values):
        raise BadFile(f"{key} must be a list of numbers or text; got {shown(values)}")
    return group_ids(listed_values)


def group_ids(values: list[Any]) -> Array:
    """Return numbers as an array of numbers; text as objects, as an array of text has every row as long as the longest.

    >>> group_ids(["a", "bc"]).dtype, group_ids([2, 3]).dtype, group_ids([b"a"])[0], group_ids([-1, 2**63])[1]
    (dtype('O'), dtype('int64'), 'a', '9223372036854775808')
    """
    if not any(isinstance(value, str | bytes) for value in values):
        numbers = np.array(values)
        if numbers.dtype.kind in "biu" or any(isinstance(value, float) for value in values):
            return numbers
    found = np.empty(len(values), object)
    found[:] = _decoded(values) if any(isinstance(value, bytes) for value in values) else list(map(str, values))
    return found


def _decoded(values: list[Any]) -> list[str]:
    """Return bytes as text, all of them by UTF-8 or else by Latin-1, so that no two become the same."""
    raw = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    try:
        return [value.decode() for value in raw]
    except UnicodeDecodeError:
        return [value.decode("latin-1") for value in raw]


def _arrays_by_key(parts: Mapping[str, Contents]) -> dict[str, Any]:
    """Return the arrays by the keys that the reader knows: plain for a whole file, else such as logits_test."""
    arrays: dict[str, Any] = {}
    for part, contents in parts.items():
        names = contents.class_names
        fields = vars(contents) | {"class_names": None if names is None else np.array(names, dtype=object)}
        ending = "" if part == WHOLE_FILE else f"_{part}"
        arrays |= {f"{key}{ending}": array for key, array in fields.items() if isinstance(array, np.ndarray)}
    return arrays


def _plain_text(key: str, array: Array) -> Any:
    """Return text as an array of text, which `.npz` can hold, unless one long name would make all of them long."""
    if array.dtype != object:
        return array
    lengths = [len(str(value)) for value in array]
    if max(lengths) * len(lengths) > _PADDING * (sum(lengths) + 2**20):
        raise BadFile(f"{key} holds a name of {max(lengths)} characters, and .npz would store all as long; write .json")
    return array.astype(str)


ARCHIVE_READERS = {".npz": read_npz, ".npy": read_npy, ".json": read_json}
ARCHIVE_WRITERS = {".npz": npz_bytes, ".json": json_bytes}
