"""The sample data -> what calibration does to it: a table and a page to look at."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from glayers.cli.compare import compared, show_comparison, write_page
from glayers.cli.method_notes import METHODS
from glayers.cli.options import Force, Quiet, Seed
from glayers.cli.outputs import Output
from glayers.cli.screen import show
from glayers.cli.verb import verb
from glayers.datasets import load_fashion_mnist
from glayers.errors import GlayersWarning

_METHODS = ["temperature", "vector", "matrix-odir", "dirichlet", "g-layers", "shared-g-layers", "auto"]
_TITLE = "A small network on Fashion-MNIST (glayers demo)"
_BEGINNING = 4_096  # bytes, in which the title of a page stands


@verb("glayers demo", "glayers demo --output first-look.html --quiet")
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE", help="Where to write the HTML report.")
    ] = Path("report.html"),
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Calibrate the sample predictions that come with the package, by every strong method, and write a report.

    A page that an earlier demo wrote is replaced; any other file only with --force.
    """
    replace = force or _is_ours(output)
    target = Output(output, replace)
    target.check()
    calibration, test = load_fashion_mnist()
    methods = _affordable()
    found = compared(calibration, test, methods, seed, quiet)
    heading = f"{len(test):,} test rows of a small network on Fashion-MNIST, fitted on {len(calibration):,} others"
    show_comparison(found, heading, quiet)
    write_page(found, calibration, output, _TITLE, seed, replace, quiet)
    show("", f"wrote {output.resolve()}: open it in a browser")


def _affordable() -> list[str]:
    """The methods of the demo that can be fitted here."""
    if find_spec("torch") is not None:
        return _METHODS
    left_out = [name for name in _METHODS if METHODS[name].torch == "yes"]
    warnings.warn(
        f'{" and ".join(left_out)} are left out, since they need torch: pip install "glayers[fit]"',
        GlayersWarning,
        stacklevel=2,
    )
    return [name for name in _METHODS if name not in left_out]


def _is_ours(path: Path) -> bool:
    """Whether a page of an earlier demo is there."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return f"<title>{_TITLE}".encode() in stream.read(_BEGINNING)
