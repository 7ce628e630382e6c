"""Published figures and our rows of DenseNet 40 on CIFAR-10 -> one small table, best NLL first.

It is the one network of published tables whose logits we have in full, so our results are for exactly the same rows.
The KS errors that others printed for their other networks show which of these figures are typical.
"""

import csv
from pathlib import Path

import numpy as np
from experiments.paper.reproduction.cells import read_figures
from experiments.paper.studies.lines import NONE, Line, different, markdown, numbers, page, read_lines, spread, where
from experiments.stamp import write_page

PUBLISHED = Path(__file__).parents[1] / "published_results.csv"
COMMITTED = Path(__file__).parents[2] / "results" / "reproduce.csv"
ROW = {"dataset": "CIFAR-10", "network": "DenseNet 40"}
METRICS = {"nll": ("NLL", 4), "ks_top1_percent": ("KS, percent", 3), "ece_top1_percent": ("ECE, percent", 3)}
KS, ALL = "ks_top1_percent", "KS over all networks"
OURS, PAPER = "**glayers**", "g-layers paper"


def read_published() -> list[Line]:
    """Return the published results of all networks, with their sources."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_field(results: Path) -> None:
    """Write field.md from the reproduction in this folder, or from the committed one if there is none."""
    made = results / "reproduce.csv"
    ours = where(read_lines(made if made.exists() else COMMITTED), **ROW)
    results.mkdir(parents=True, exist_ok=True)
    write_page(results / "field.md", field_table(ours, read_published()))


def field_table(ours: list[Line], published: list[Line]) -> str:
    """Return every method with an NLL in order of it, then those without in order of their KS error."""
    here = where(published, **ROW)
    rows = _published(here, where(published, metric=KS)) + _printed_by_the_paper() + _ours(ours)
    rows.sort(key=lambda row: tuple(float(cell.split()[0]) if cell != NONE else float("inf") for cell in row[2:]))
    seeds = max(len(different(where(ours, method=method), "seed")) for method in different(ours, "method"))
    return page(
        "Made by `python -m experiments.paper.studies.command field` from `published_results.csv`, "
        "`paper_results.csv` and `results/reproduce.csv`. The rows are the published logits of DenseNet 40 on "
        "CIFAR-10: fitted on 5,000, "
        f"scored on 10,000. Ours are means over up to {seeds} seeds ± standard deviation.",
        f"The same method differs between published sources by up to {_disagreement(here):.4f} in NLL, so smaller "
        "differences between sources say nothing. The last column is the mean over all networks of that source; we "
        "have the logits of this one only.",
        _ahead(where(here, metric=KS), ours),
        markdown(["method", "figures of", *(heading for heading, _ in METRICS.values()), ALL], rows, words=2),
    )


def _ahead(published: list[Line], ours: list[Line]) -> str:
    """Name the published methods with a lower KS error than `auto` on these rows."""
    best = float(np.mean(numbers(where(ours, method="auto"), KS)))
    ahead = sorted((float(line["value"]), line["method"]) for line in published if float(line["value"]) < best)
    named = ", ".join(f"{method} ({value:.3f})" for value, method in ahead)
    return f"Published methods with a lower KS error than `auto` ({best:.3f}) on these rows: {named or 'none'}."


def _published(lines: list[Line], everywhere: list[Line]) -> list[list[str]]:
    return [
        [
            *(method, source),
            *(_figure(where(lines, method=method, source=source, metric=name), name) for name in METRICS),
            _mean(where(everywhere, method=method, source=source)),
        ]
        for source in different(lines, "source")
        for method in different(where(lines, source=source), "method")
    ]


def _disagreement(lines: list[Line]) -> float:
    """The largest difference in NLL between two sources for the same method."""
    nll = where(lines, metric="nll")
    found = [numbers(where(nll, method=method), "value") for method in different(nll, "method")]
    return max(max(values) - min(values) for values in found)


def _mean(lines: list[Line]) -> str:
    return f"{np.mean(numbers(lines, 'value')):.3f} ({len(lines)} networks)" if len(lines) > 1 else NONE


def _figure(found: list[Line], metric: str) -> str:
    return f"{float(found[0]['value']):.{METRICS[metric][1]}f}" if found else NONE


def _printed_by_the_paper() -> list[list[str]]:
    figures = {key[2:]: value for key, value in read_figures().items() if key[:2] == tuple(ROW.values())}
    return [
        [
            method,
            PAPER,
            *(f"{figures[method, m]:.{d}f}" if (method, m) in figures else NONE for m, (_, d) in METRICS.items()),
            NONE,
        ]
        for method in dict.fromkeys(method for method, _ in figures)
    ]


def _ours(lines: list[Line]) -> list[list[str]]:
    return [
        [
            *(method, OURS),
            *(spread(numbers(where(lines, method=method), m), digits) for m, (_, digits) in METRICS.items()),
            NONE,
        ]
        for method in different(lines, "method")
    ]
