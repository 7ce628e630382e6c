"""Lines of results -> a csv and back, and the pieces tables are made of."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from glayers.files import write_whole

Line: TypeAlias = dict[str, str]
NONE = "-"


def read_lines(file: Path) -> list[Line]:
    """Return the lines of the file, or none if there is no file yet."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write_lines(file: Path, columns: Sequence[str], lines: Iterable[Line]) -> None:
    """Write all lines again, in one step."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.getvalue().encode())


def different(lines: Iterable[Line], column: str) -> list[str]:
    """Return the different values of a column, in order.

    >>> different([{"seed": "1"}, {"seed": "0"}, {"seed": "1"}], "seed")
    ['1', '0']
    """
    return list(dict.fromkeys(line[column] for line in lines))


def where(lines: Iterable[Line], **wanted: str) -> list[Line]:
    """Return the lines with these values."""
    return [line for line in lines if all(line[column] == value for column, value in wanted.items())]


def numbers(lines: Iterable[Line], column: str) -> list[float]:
    """Return the numbers of a column, without the empty cells of failed fits."""
    return [float(line[column]) for line in lines if line[column]]


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean and, of several, the standard deviation.

    >>> spread([1.0, 2.0, 3.0], 1), spread([0.25], 2), spread([], 1)
    ('2.0 ± 1.0', '0.25', '-')
    """
    if not len(values):
        return NONE
    return f"{np.mean(values):.{digits}f}" + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """Return a Markdown table, its first columns words and the others numbers.

    >>> print(markdown(["set", "KS"], [["a", "1.0"]]))
    | set | KS |
    |---|---:|
    | a | 1.0 |
    """
    rule = "|" + "---|" * words + "---:|" * (len(header) - words)
    return "\n".join(["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def page(*parts: str) -> str:
    """Return paragraphs, headings and tables as one file."""
    return "\n\n".join(part for part in parts if part) + "\n"
