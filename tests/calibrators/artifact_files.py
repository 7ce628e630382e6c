"""Files of calibrators taken apart and put together again, sound or not."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.numpy import save_file

from glayers.serving.artifact import METADATA, checksum
from tests.strategies import Numbers

Facts = dict[str, Any]
Arrays = dict[str, Numbers]


def contents(path: Path) -> tuple[Facts, Arrays]:
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()[METADATA]), {name: file.get_tensor(name) for name in [*file.keys()]}


def write(path: Path, facts: Any, arrays: Arrays, sign: bool = True) -> Path:
    """Write a file as `save` would; signed anew, so that more than the checksum has to notice what is wrong with it."""
    if sign:
        facts = {name: value for name, value in facts.items() if name != "sha256"}
        facts["sha256"] = checksum(facts, arrays)
    path.unlink(missing_ok=True)  # as in tests/files.py
    save_file(arrays, path, {METADATA: json.dumps(facts)})
    return path
