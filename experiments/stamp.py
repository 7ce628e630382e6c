"""A table -> the same table with a line that names the version of the code behind its newest numbers.

The line also has a checksum of the numbers: of the csv beside the table, or else of the table itself. A table that is
written again from the same numbers keeps its line, so that a new layout does not claim new results.
"""

import re
import subprocess
from hashlib import sha256
from pathlib import Path

import glayers

STAMP = re.compile(r"^Newest numbers: glayers .*; checksum ([0-9a-f]{12})\.\n\n", re.MULTILINE)


def write_page(page: Path, text: str) -> None:
    """Write a table of results with its stamp; its csv, if it has one, must have been written before."""
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(stamped(text, checksum(page, text), before, code_version()), encoding="utf-8")


def stamped(text: str, numbers: str, before: str, version: str) -> str:
    """Return the text with a stamp below its title; that of `before` if its numbers are the same."""
    old = STAMP.search(before)
    stamp = f"Newest numbers: {version}; checksum {numbers}.\n\n"
    if old is not None and old[1] == numbers:
        stamp = old[0]
    title = re.match(r"# .*\n\n", text)
    head = title[0] if title else ""
    return head + stamp + text[len(head) :]


def checksum(page: Path, text: str) -> str:
    """Return twelve digits for the numbers of a table."""
    data = page.with_suffix(".csv")
    content = data.read_bytes() if data.exists() else STAMP.sub("", text).encode()
    return sha256(content).hexdigest()[:12]


def code_version() -> str:
    """Return the version of glayers and the commit that is checked out, and whether the library has changed since."""
    root = Path(__file__).parent.parent
    try:
        commit = _git(root, "rev-parse", "--short=7", "HEAD")
        changed = " with changes" if _git(root, "status", "--porcelain", "--", "src") else ""
    except (OSError, subprocess.CalledProcessError):
        return f"glayers {glayers.__version__}"
    return f"glayers {glayers.__version__} at {commit}{changed}"


def _git(root: Path, *words: str) -> str:
    command = ["git", *words]  # whichever is on the path
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
