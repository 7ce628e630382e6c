"""Text of a page -> the same text with what its code prints and draws.

`make docs` runs the code, so the site shows what the code above it prints, and no
output can go stale.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURES = (".png", ".svg")


def with_outputs(text: str, folder: Path, address: str) -> str:
    """Run the blocks of a page in a folder; put what each prints and draws below it.

    `address` is the folder as an image of the page names it.
    """
    session: dict[str, Any] = {"__name__": "page"}

    def run(block: re.Match[str]) -> str:
        language, code = block[1], block[2]
        before = set(folder.iterdir())
        if language == "console":
            shown = f"```console\n{_of_commands(code, folder)}```"
        else:
            printed = _of_python(code, session, folder).rstrip()
            shown = block[0] + (f"\n\n```text\n{printed}\n```" if printed else "")
        return shown + _pictures(folder, before, address)

    with contextlib.chdir(folder):
        return BLOCK.sub(run, text)


def write_sample(folder: Path) -> None:
    """Write the sample data as the files that commands of the pages read."""
    import glayers

    for name, rows in zip(
        ("calibration", "test"), glayers.datasets.load_fashion_mnist(), strict=True
    ):
        names = np.array(rows.class_names)
        np.savez(
            folder / f"{name}.npz",
            logits=rows.logits,
            labels=rows.labels,
            class_names=names,
        )


def _of_python(code: str, session: dict[str, Any], folder: Path) -> str:
    """Run one block, and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(folder), "exec"), session)  # noqa: S102  # code of our own pages
    return printed.getvalue()


def _of_commands(code: str, folder: Path) -> str:
    """Return the commands of one block, each with what it prints."""
    shown = ""
    for line in code.splitlines():
        _, _, *words = shlex.split(line)  # a dollar, and the name of the program
        command = [sys.executable, "-m", "glayers", *words]
        done = subprocess.run(  # noqa: S603  # commands of our own pages
            command, cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 3):  # 3: a limit is exceeded, as the page says
            raise RuntimeError(f"{line}\n{done.stderr}")
        shown += f"{line}\n{done.stdout}"
    return shown


def _pictures(folder: Path, before: set[Path], address: str) -> str:
    """Return the pictures that a block has written."""
    made = sorted(
        path.name for path in set(folder.iterdir()) - before if path.suffix in PICTURES
    )
    return "".join(
        f"\n\n![What the code above draws]({address}/{name})" for name in made
    )
