"""A name for a file, and `--force` -> the file, or the reason why not, said before any long work begins."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from glayers.cli.inputs import PIPE
from glayers.cli.screen import one_line
from glayers.errors import BadFile
from glayers.files import write_whole


@dataclass(frozen=True)
class Output:
    """Where to write; nothing is replaced without `force`, and no input ever."""

    path: Path
    force: bool
    inputs: tuple[Path, ...] = ()

    def check(self) -> None:
        """Refuse what could not be written in the end."""
        if self.path == PIPE:
            raise typer.BadParameter("-o - is for the predictions of `glayers apply`; give the name of a file")
        if any(_same(self.path, given) for given in self.inputs):
            raise BadFile(f"{self.path}: is one of the files to read; write to another, so that nothing is lost")
        if self.path.is_dir():
            raise BadFile(f"{self.path}: is a directory; give the name of a file in it")
        if self.path.exists() and not self.path.is_file():
            raise BadFile(f"{self.path}: is no regular file; give another name")
        if os.path.lexists(self.path) and not self.force:
            raise BadFile(f"{self.path}: is there already; --force replaces it, or give another name")
        folder = Path(os.path.realpath(self.path)).parent
        if not folder.is_dir():
            raise BadFile(f"{self.path}: there is no folder {folder}; make it first")
        if not os.access(folder, os.W_OK):
            raise BadFile(f"{self.path}: you may not write to the folder {folder}; choose another")

    def write(self, data: bytes) -> None:
        """Write the file in one step; it is looked at once more, since fits take a while."""
        self.check()
        write_whole(self.path, data)


def write_to_pipe(data: bytes, *, text: bool) -> None:
    """Write to standard output: bytes as they are to a program, text without escape sequences to a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if not text:
        raise typer.BadParameter("a terminal cannot show this format; redirect the output, or choose --format csv")
    for line in data.decode().splitlines():
        sys.stdout.write(one_line(line.replace("\t", "    ")) + "\n")
    sys.stdout.flush()


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
