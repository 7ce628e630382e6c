"""Rows of cells, the first of them headings -> a table as Markdown, as HTML, as text, or for the terminal.

Also p-values as text, and numbers as JSON has them.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.table import Table

_Value = TypeVar("_Value")


def p_text(p_value: float, n_draws: int | None = None) -> str:
    """Return a p-value within a sentence; smaller ones than 0.0001 depend on the tail of an approximation.

    A p-value from draws is at least 1 / (draws + 1): there it is only known that the true one is no larger.

    >>> p_text(0.0312), p_text(1e-9), p_text(0.001, n_draws=999)
    ('p = 0.031', 'p < 0.0001', 'p <= 0.001')
    """
    if n_draws is not None and p_value * (n_draws + 1) < 1.5:  # the next higher one is 2 / (draws + 1)
        return f"p <= {max(p_value, 1 / (n_draws + 1)):.2g}"
    if p_value < 1e-4:
        return "p < 0.0001"
    return f"p = {p_value:.2g}"


def two_digits(number: float) -> str:
    """Return a number with two significant digits, never with an exponent of ten for numbers near 100.

    >>> two_digits(0.0123), two_digits(3.44), two_digits(99.7)
    ('0.012', '3.4', '100')
    """
    return f"{float(f'{number:.2g}'):g}"


def json_ready(value: _Value) -> _Value:
    """Return records, arrays and numbers as JSON has them, which lacks NaN and infinity: None stands for them.

    >>> json_ready({"p_value": float("nan"), "counts": (1, 2)})
    {'p_value': None, 'counts': [1, 2]}
    """
    text = json.dumps(value, default=lambda array: array.tolist())
    ready: _Value = json.loads(text, parse_constant=lambda _: None)
    return ready


def markdown_table(rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    r"""Return a Markdown table whose first columns are text and whose other columns are numbers.

    >>> print(markdown_table([("metric", "value"), ("a|b", "0.12")]))
    | metric | value |
    |---|---:|
    | a\|b | 0.12 |
    """
    lines = []
    for cells in rows:
        escaped = [" ".join(cell.split()).replace("|", r"\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
        if len(lines) == 1:
            numbers = len(escaped) - text_columns
            lines.append("|" + "---|" * text_columns + "---:|" * numbers)
    return "\n".join(lines)


def html_table(rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Return an HTML table for notebooks, with a paragraph below it per note; whatever a name holds is text.

    >>> html_table([("metric", "value"), ("<b>", "0.12")], ["a note"])
    '<table><tr><th>metric</th><th>value</th></tr><tr><td>&lt;b&gt;</td><td>0.12</td></tr></table><p>a note</p>'
    """
    tag = "th"
    lines = []
    for cells in rows:
        written = "".join(f"<{tag}>{escape(cell.strip())}</{tag}>" for cell in cells)
        lines.append(f"<tr>{written}</tr>")
        tag = "td"
    below = "".join(f"<p>{escape(note)}</p>" for note in notes if note)
    return f"<table>{''.join(lines)}</table>{below}"


def aligned_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as lines of text, with the first column on the left and numbers on the right.

    >>> print(aligned_table([("", "nll"), ("temperature", "0.25")]))
                  nll
    temperature  0.25
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def terminal_table(rows: Sequence[Sequence[str]], caption: str = "") -> "Table":
    """Return a table for the terminal, with bold headings; what ends with a star is bold too."""
    from rich.table import Table  # slow to import
    from rich.text import Text

    headings, *lines = rows
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right" if table.columns else "left")
    widths = [0, *(max(map(len, column)) for column in list(zip(*rows, strict=True))[1:])]
    for cells in lines:
        filled = map(str.rjust, cells, widths)  # rich would move "0.5  " to the right, below the star of "0.5 *"
        table.add_row(*(Text(cell, "bold" if cell.endswith("*") else "", justify="left") for cell in filled))
    return table
