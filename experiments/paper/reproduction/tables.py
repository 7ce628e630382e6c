"""Lines of results -> the paper's tables in Markdown, each set in three rows: paper, ours over seeds, difference."""

import numpy as np
from experiments.paper.reproduction.cells import Cells, Figures
from experiments.paper.reproduction.collection import SOURCES, Source
from experiments.paper.reproduction.methods import METHODS, METRICS, OURS

COMMAND = "python -m experiments.paper.reproduction.command --logits DIR"
NONE = "-"
BEST = "auto"


def as_markdown(cells: Cells, figures: Figures) -> str:
    """Return every table for the sets with fits; the others are named."""
    there = [source for source in SOURCES if any(key[:2] == source[:2] for key in cells)]
    absent = [_title(source) for source in SOURCES if source not in there]
    methods = [name for name in METHODS if any(key.method == name for key in cells)]
    lines = [
        f"Made by `{COMMAND}`. Fitted on calibration rows, scored on test rows.",
        "",
        "Ours is the mean over seeds ± their standard deviation, without one where a single fit was made.",
        f"Seeds: {_seeds(methods, cells)}.",
        "`ms_odir` takes the strength that cross-validation chooses, and never falls back to temperature scaling.",
        "`dir_odir` is our Dirichlet calibration, which has priors of its own in the place of the ODIR penalty.",
        "`g_layers_1` to `g_layers_5` follow the paper's recipe.",
        "The paper has no figures of " + ", ".join(f"`{name}`" for name in OURS) + ": these are ours.",
        "",
        f"Not run, for want of their files: {'; '.join(absent) or 'none'}.",
        *_against_the_best(there, cells, figures),
    ]
    for metric, about in METRICS.items():
        lines += ["", f"## {about.heading}", "", "| set | | " + " | ".join(methods) + " |"]
        lines.append("|---|---|" + "---:|" * len(methods))
        for source in there:
            lines += _three_rows(source, metric, methods, cells, figures)
    notes = [
        f"- {key.dataset}, {key.network}, {key.method}, seed {key.seed}: {cell['note']}"
        for key, cell in sorted(cells.items())
        if cell["note"]
    ]
    return "\n".join([*lines, "", "## What the fits said", "", *(notes or ["Nothing."])]) + "\n"


def _seeds(methods: list[str], cells: Cells) -> str:
    seeds = {name: len({key.seed for key in cells if key.method == name}) for name in methods}
    return ", ".join(f"`{name}` {count}" for name, count in seeds.items())


def _three_rows(source: Source, metric: str, methods: list[str], cells: Cells, figures: Figures) -> list[str]:
    digits = METRICS[metric].digits
    paper = [figures.get((source.dataset, source.network, method, metric)) for method in methods]
    ours = [_values(source, method, metric, cells) for method in methods]
    rows = {
        "paper": [NONE if figure is None else f"{figure:.{digits}f}" for figure in paper],
        "ours": [_spread(values, digits) for values in ours],
        "difference": [
            NONE if figure is None or not values else f"{np.mean(values) - figure:+.{digits}f}"
            for figure, values in zip(paper, ours, strict=True)
        ],
    }
    return [
        f"| {_title(source) if name == 'paper' else ''} | {name} | " + " | ".join(row) + " |"
        for name, row in rows.items()
    ]


def _against_the_best(there: list[Source], cells: Cells, figures: Figures) -> list[str]:
    """One method of ours, chosen beforehand, beside the best column of the paper, chosen on test rows."""
    if not any(key.method == BEST for key in cells):
        return []
    lines = ["", f"## `{BEST}` beside the best figure of the paper", ""]
    lines += [f"| set | table | paper's best | its method | {BEST} | difference |", "|---|---|---:|---|---:|---:|"]
    for source in there:
        for metric, about in METRICS.items():
            printed = {key[2]: figure for key, figure in figures.items() if (*key[:2], key[3]) == (*source[:2], metric)}
            ours = _values(source, BEST, metric, cells)
            if printed and ours:
                best = about.better(printed.values())
                holders = ", ".join(method for method, figure in printed.items() if figure == best)
                cell = f"{best:.3f} | {holders} | {_spread(ours, about.digits)} | {np.mean(ours) - best:+.3f}"
                lines.append(f"| {_title(source)} | {about.heading} | {cell} |")
    return lines


def _values(source: Source, method: str, metric: str, cells: Cells) -> list[float]:
    return [float(cell[metric]) for key, cell in cells.items() if key[:3] == (*source[:2], method)]


def _spread(values: list[float], digits: int) -> str:
    if not values:
        return NONE
    return f"{np.mean(values):.{digits}f}" + (f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "")


def _title(source: Source) -> str:
    return f"{source.dataset}, {source.network}"
