"""The options that verbs share, each described once."""

from collections.abc import Callable, Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from glayers.cli.method_notes import METHODS
from glayers.cli.verb import FLAG

# readable=False throughout: the reader itself says, in one line, why it cannot read a file.
_FORMATS = ".npz, .npy, .csv, .tsv, .parquet, .json or a pickle of logits"
PREDICTIONS = f"Predictions and their labels: {_FORMATS}; - reads a pipe."

Predicted = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help=PREDICTIONS)]
Calibration = Annotated[Path, typer.Argument(metavar="CAL", readable=False, help=f"Rows to fit on. {PREDICTIONS}")]
Test = Annotated[
    Path | None,
    typer.Argument(metavar="TEST", readable=False, help="Rows to judge by; not needed where CAL holds both parts."),
]
Labels = Annotated[
    Path | None,
    typer.Option(metavar="FILE", readable=False, help="Labels (.npy), where the predictions are logits (.npy)."),
]
Part = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this part of a file with two: calibration or test.")
]
Force = Annotated[bool, typer.Option("--force", "-f", metavar=FLAG, help="Replace a file that is there already.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", metavar=FLAG, help="No notes, no progress; errors are still shown.")
]
AsJson = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON for programs; null is infinity.")]
Report = Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report too, one file to look at.")]

_LARGEST_SEED = 2**32 - 1  # of NumPy's older generators, which scikit-learn uses


def _complete_method(incomplete: str) -> list[tuple[str, str]]:
    return [(name, note.is_a) for name, note in METHODS.items() if name.startswith(incomplete)]


def _complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in METHODS if name.startswith(last)]


def known_name(name: str, known: Collection[str], what: str, listed_where: str) -> str:
    """Return the name, or say which of the known ones may be meant, or else where they are listed."""
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"`{listed_where}` lists them."
    raise typer.BadParameter(f"unknown {what} {name!r}; {hint}")


def known_method(name: str) -> str:
    """Return the name of a method, or say which is meant."""
    return known_name(name, METHODS, "method", "glayers methods")


def known_methods(names: str) -> str:
    """Check a list with commas."""
    wanted = method_names(names)
    if not wanted:
        raise typer.BadParameter("no method is named; leave --methods out for the strongest seven")
    for name in wanted:
        known_method(name)
    return names


def method_names(names: str) -> list[str]:
    """Return the names of a list with commas; "all" is every one.

    >>> method_names("temperature, vector")
    ['temperature', 'vector']
    """
    if names == "all":
        return list(METHODS)
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def known_seed(seed: int) -> int:
    """Return the seed, or say how large one can be."""
    if seed > _LARGEST_SEED:
        raise typer.BadParameter(f"a seed is at most {_LARGEST_SEED}; got {seed}")
    return seed


def checked(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """Let a check pass over an option that nobody gave."""
    return lambda given: None if given is None else check(given)


Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        callback=known_method,
        autocompletion=_complete_method,
        help="One of `glayers methods`.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        callback=checked(known_methods),
        autocompletion=_complete_methods,
        help="Names of `glayers methods` with commas between them, or all; the strongest seven if not given.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, callback=known_seed, help="Seed of everything random: same seed, same result."),
]
