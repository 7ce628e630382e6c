"""An artifact -> one `.safetensors` file, and back: arrays by name, all else as JSON in its metadata; never code.

The same artifact gives the same bytes. What cannot be read back is not written; what was damaged since is not believed.
A file is read once and never mapped into memory: one that somebody cuts short meanwhile would end the process.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from glayers.arrays import Array
from glayers.calibrators.artifact import Artifact, check_format
from glayers.errors import BadFile, GlayersError
from glayers.files import write_whole

METADATA = "glayers"  # one entry holds all: the order of several in a header is not ours to choose
LONGEST_HEADER = 2**24  # 16 MB: names and label counts of some hundred thousand classes
LARGEST_FILE = 2**32  # 4 GB: g-layers of 1,000 classes and ten members are a tenth of it
# Names with what they hold, checked against each other and against the length of the bytes; it ships without types.
_tensors_in: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize
_DAMAGED = "the file is cut short or damaged: fetch it or write it again"


def write_artifact(artifact: Artifact, path: Path) -> None:
    """Write all of it in one step; what no file can hold is said before anything is written."""
    facts, arrays = artifact.facts(), artifact.arrays()
    data = save(arrays, {METADATA: _json(facts | {"sha256": checksum(facts, arrays)})})
    try:
        Artifact.of(json.loads(_json(facts)), arrays)
    except BadFile as error:
        raise GlayersError(f"not saved, since it could not be loaded again: {error}") from error
    if _header_length(data) > LONGEST_HEADER:
        raise GlayersError(f"settings and names take more than {LONGEST_HEADER} bytes: shorten the class names")
    if len(data) > LARGEST_FILE:
        raise GlayersError(f"the map takes more than {LARGEST_FILE} bytes: fit fewer members or smaller layers")
    write_whole(path, data)


def read_artifact(path: Path) -> Artifact:
    """Read what `write_artifact` wrote, and check all of it; call it within `problems_of(path)`."""
    text, data = _facts_and_bytes(path)
    arrays = {}
    for name, tensor in _tensors_in(data):
        if tensor["dtype"] != "F64":
            raise BadFile(f"the array {name!r:.60} must be of type F64; it is {tensor['dtype']}")
        arrays[name] = np.frombuffer(tensor["data"], "<f8").reshape(tensor["shape"]).astype(np.float64)
    facts = json.loads(text)
    if type(facts) is not dict:
        raise BadFile(f"its facts must be a JSON object; got {facts!r:.60}")
    check_format(facts)
    if facts.pop("sha256", None) != checksum(facts, arrays):
        raise BadFile(f"its contents do not have the checksum that stands beside them; {_DAMAGED}")
    return Artifact.of(facts, arrays)


@contextmanager
def problems_of(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with a file into one line that names it."""
    try:
        yield
    except BadFile as error:
        raise BadFile(f"{path}: {error}") from error
    except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
        said = " ".join(str(error).split())[:300]
        raise BadFile(f"{path}: cannot be read ({type(error).__name__}: {said}); {_DAMAGED}") from error


def checksum(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of all that a file says."""
    digest = hashlib.sha256(_json(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))


def _facts_and_bytes(path: Path) -> tuple[str, bytes]:
    """Return what a file says of itself, and all of its bytes; one not ours is read no further than its header."""
    with _opened(path) as stream:
        size, beginning = os.fstat(stream.fileno()).st_size, stream.read(8)
        if len(beginning) < 8 or _header_length(beginning) > min(size - 8, LONGEST_HEADER):
            raise BadFile(f"does not begin as a safetensors file does; {_DAMAGED}")
        text = _facts_in(json.loads(stream.read(_header_length(beginning)).decode()))
        if size > LARGEST_FILE:
            raise BadFile(f"takes {size} bytes, and no calibrator takes more than {LARGEST_FILE}; {_DAMAGED}")
        stream.seek(0)
        return text, stream.read(size)


def _opened(path: Path) -> BinaryIO:
    if path.is_dir():
        raise BadFile("is a directory; give one file in it")
    if not path.exists():
        raise BadFile("there is no such file; check the path")
    if not path.is_file():
        raise BadFile("is not a regular file; copy its contents to one")
    try:
        return path.open("rb")
    except OSError as error:
        raise BadFile(f"cannot be opened ({error.strerror}); check your right to read it") from error


def _facts_in(header: object) -> str:
    metadata = header.get("__metadata__") if type(header) is dict else None
    text = metadata.get(METADATA) if type(metadata) is dict else None
    if type(text) is not str:
        raise BadFile("is a safetensors file, but no calibrator of glayers; load it with what wrote it")
    return text


def _header_length(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")
