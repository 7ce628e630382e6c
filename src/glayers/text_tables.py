"""Numbers and names -> text; rows of cells, the first of them headings -> a table as Markdown, HTML or text.

Also numbers as JSON has them.
"""

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeVar

_Value = TypeVar("_Value")


class Tabled:
    """A record that prints as a table with notes, also as Markdown and in notebooks. The first cells are headings."""

    def cells(self) -> Sequence[Sequence[str]]:
        """Return the table, a line of headings first."""
        raise NotImplementedError

    def footnotes(self) -> list[str]:
        """Return the lines below the table."""
        return []

    def to_markdown(self) -> str:
        """Return the table as Markdown, with its notes."""
        notes = [note.replace("*", r"\*") for note in self.footnotes()]
        return "\n\n".join([markdown_table(self.cells()), *notes])

    def _repr_html_(self) -> str:
        return html_table(self.cells(), self.footnotes())

    def __str__(self) -> str:
        return "\n".join([aligned_table(self.cells()), *self.footnotes()])


def shortened(name: str, most: int = 40) -> str:
    """Return a name that fits a menu, an axis or a title: cut to `most` characters if it is longer.

    >>> shortened("a" * 50, most=5)
    'aaaa…'
    """
    if len(name) <= most:
        return name
    return name[: most - 1] + "…"


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def plural(number: float, singular: str) -> str:
    """Return a number of things.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    if round(number) == 1:
        return f"1 {singular}"
    ending = "es" if singular.endswith("s") else "s"
    return f"{number:,.0f} {singular}{ending}"


def percent(fraction: float, digits: int = 2) -> str:
    """Return a fraction in percent, with so many decimals or, if it is small, with two significant digits.

    >>> percent(0.25), percent(0.25, 0), percent(0.00001234)
    ('25.00 %', '25 %', '0.0012 %')
    """
    if fraction != 0:
        digits = max(digits, 1 - math.floor(math.log10(abs(100 * fraction))))
    return f"{100 * fraction:.{min(digits, 6)}f} %"


def points(fraction: float) -> str:
    """Return a difference of fractions in points, with its sign, which zero has not.

    >>> points(0.0312), points(-0.00001)
    ('+3.1', '0.0')
    """
    number = round(100 * fraction, 1)
    if number == 0:
        return "0.0"
    return f"{number:+.1f}"


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
    return json.loads(text, parse_constant=lambda _: None)


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
