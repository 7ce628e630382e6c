"""Rows of cells, the first of them headings -> a table as Markdown, LaTeX, CSV or aligned text."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
    }
)


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


def latex_table(rows: Iterable[Sequence[str]], text_columns: int = 1) -> str:
    r"""Return a LaTeX table for the package booktabs.

    >>> print(latex_table([("method", "KS"), ("g_1", "0.5 %")]))
    \begin{tabular}{lr}
    \toprule
    method & KS \\
    \midrule
    g\_1 & 0.5 \% \\
    \bottomrule
    \end{tabular}
    """
    heading, *lines = [[cell.translate(_LATEX) for cell in cells] for cells in rows]
    columns = "l" * text_columns + "r" * (len(heading) - text_columns)
    table = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rf"{' & '.join(heading)} \\", r"\midrule"]
    table += [rf"{' & '.join(cells)} \\" for cells in lines]
    table += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(table)


def csv_table(records: Sequence[Mapping[str, Any]]) -> str:
    r"""Return records with the same keys as CSV.

    >>> csv_table([{"method": "temperature", "nll": 0.25}])
    'method,nll\ntemperature,0.25\n'
    """
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def data_frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return records as a pandas data frame; pandas is imported here only."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("to_frame needs pandas: pip install pandas", name="pandas") from error
    return pandas.DataFrame(list(records))


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
