"""Rows of cells, the first of them headings -> a table as Markdown or as aligned text."""

from collections.abc import Iterable, Sequence


def markdown_table(rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    r"""Return a Markdown table whose first columns are text and whose other columns are numbers.

    >>> print(markdown_table([("metric", "value"), ("a|b", "0.12")]))
    | metric | value |
    |---|---:|
    | a\|b | 0.12 |
    """
    heading, *lines = ([" ".join(cell.split()).replace("|", r"\|") for cell in cells] for cells in rows)
    rule = "|" + "---|" * text_columns + "---:|" * (len(heading) - text_columns)
    first, *others = (f"| {' | '.join(cells)} |" for cells in (heading, *lines))
    return "\n".join([first, rule, *others])


def aligned_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as lines of text, with the first column on the left and numbers on the right.

    >>> print(aligned_table([("", "nll"), ("temperature", "0.25")]))
                  nll
    temperature  0.25
    """
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join("  ".join([name.ljust(first), *map(str.rjust, cells, others)]).rstrip() for name, *cells in rows)
