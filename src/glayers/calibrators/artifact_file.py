"""An artifact -> one `.safetensors` file, and back: arrays by name, all else as JSON in its metadata; never code.

The same artifact gives the same bytes. What cannot be read back is not written; what was damaged since is not believed.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from glayers.arrays import Array
from glayers.calibrators.artifact import Artifact, check_format
from glayers.errors import BadFile, GlayersError
from glayers.files import write_whole

METADATA = "glayers"  # one entry holds all: the order of several in a header is not ours to choose
LONGEST_HEADER = 2**24  # 16 MB: names and label counts of some hundred thousand classes
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
    write_whole(path, data)


def read_artifact(path: Path) -> Artifact:
    """Read what `write_artifact` wrote, and check all of it; call it within `problems_of(path)`."""
    _check_beginning(path)
    with safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(METADATA)
        if text is None:
            raise BadFile("is a safetensors file, but no calibrator of glayers; load it with what wrote it")
        names = list(file.keys())
        kinds = {name: file.get_slice(name).get_dtype() for name in names}
        odd = [name for name, kind in kinds.items() if kind != "F64"]
        if odd:
            raise BadFile(f"the array {odd[0]!r:.60} must be of type F64; it is {kinds[odd[0]]}")
        arrays = {name: np.array(file.get_tensor(name)) for name in names}
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


def _check_beginning(path: Path) -> None:
    """Look at the first bytes of a regular file, so that nothing large is read that is not ours."""
    if path.is_dir():
        raise BadFile("is a directory; give one file in it")
    if not path.exists():
        raise BadFile("there is no such file; check the path")
    if not path.is_file():
        raise BadFile("is not a regular file; copy its contents to one")
    try:
        with path.open("rb") as stream:
            beginning = stream.read(8)
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise BadFile(f"cannot be opened ({error.strerror}); check your right to read it") from error
    if len(beginning) < 8 or _header_length(beginning) > min(size - 8, LONGEST_HEADER):
        raise BadFile(f"does not begin as a safetensors file does; {_DAMAGED}")


def _header_length(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")
