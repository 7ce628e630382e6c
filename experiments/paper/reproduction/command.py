"""The paper's published logits -> every table of the paper: the printed result, ours over seeds, the difference.

DIR holds pickles of the NN_calibration collection by their own names, or .npz files of the same rows; missing files are
named and the rest is run. Writes experiments/results/reproduce.csv, one line per fit, and the tables as Markdown from
that file alone. A fit in the file is not repeated; without DIR only the tables are written.

Learning rate and weight decay come from the search at 3 layers and are used again at 2, 4 and 5, as in the paper; one
layer has its own search. Depths that the paper did not print for a set are left out.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.paper.reproduction.cells import Cells, Figures, Key, read_cells, read_figures, write_cells
from experiments.paper.reproduction.collection import SOURCES, Source, find, read_checked
from experiments.paper.reproduction.methods import METHODS, OURS, REUSED, SEARCHED, SEEDLESS, Found, fit_cell
from experiments.paper.reproduction.tables import as_markdown
from experiments.stamp import write_page

from glayers import BadFile, Predictions

RESULTS = Path(__file__).parents[2] / "results" / "reproduce.csv"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if an existing file could not be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="CSV")
    parser.add_argument("--any-rows", action="store_true", help="take other numbers of rows than the paper's")
    settings = parser.parse_args(arguments)
    if settings.logits is not None and not settings.logits.is_dir():
        parser.error(f"--logits must be a folder with files such as {SOURCES[0].file}.p; got {settings.logits}")
    cells, figures, unusable = read_cells(settings.results), read_figures(), []
    for source in SOURCES if settings.logits is not None else ():
        try:
            fit_source(source, settings, cells, figures)
        except BadFile as problem:
            unusable.append(f"not used: {problem}")
    text = as_markdown(cells, figures)
    write_page(settings.results.with_suffix(".md"), text)
    print("\n".join([text, *unusable]))
    return int(bool(unusable))


def fit_source(source: Source, settings: argparse.Namespace, cells: Cells, figures: Figures) -> None:
    """Run the missing fits of one file, and save after each."""
    title = f"{source.dataset}, {source.network}"
    file = find(settings.logits, source)
    if file is None:
        print(f"{title}: missing, there is no {source.file}.p", flush=True)
        return
    wanted = fits_of(source, settings.methods, settings.seeds, figures)
    left = [key for key in wanted if key not in cells]
    print(f"{title}: {len(wanted) - len(left)} of {len(wanted)} fits are done", flush=True)
    if not left:
        return
    calibration, test = read_checked(file, source.dataset, settings.any_rows)
    refuse_other_rows(settings.results, source, cells, calibration, test)
    for number, key in enumerate(left, 1):
        began = time.perf_counter()
        searched = cells[key._replace(method=SEARCHED)] if key.method in REUSED else None
        found = Found(*(float(searched[name]) for name in Found._fields)) if searched else Found()
        cell = fit_cell(key.method, key.seed, found, calibration, test)
        cells[key] = {name: str(value) for name, value in key._asdict().items()} | cell
        write_cells(settings.results, cells)
        done = f"KS {cell['ks_top1_percent']}, {time.perf_counter() - began:.1f} s"
        print(f"  {number}/{len(left)} {key.method}, seed {key.seed}: {done}", flush=True)


def fits_of(source: Source, chosen: Sequence[str], seeds: int, figures: Figures) -> list[Key]:
    """Return the fits of a set, seed by seed: the chosen ones, preceded by the search whose settings others reuse."""
    printed = {method for dataset, network, method, _ in figures if (dataset, network) == source[:2]}
    wanted = {method for method in chosen if method in printed or method in OURS}
    wanted |= {SEARCHED} if wanted & set(REUSED) else set()
    return [
        Key(source.dataset, source.network, method, seed)
        for seed in range(seeds)
        for method in sorted(METHODS, key=REUSED.__contains__)
        if method in wanted and (seed == 0 or method not in SEEDLESS)
    ]


def refuse_other_rows(results: Path, source: Source, cells: Cells, calibration: Predictions, test: Predictions) -> None:
    """Refuse to mix rows: a mean over seeds needs the same rows."""
    now = str(len(calibration)), str(len(test))
    for key, cell in cells.items():
        if key[:2] == source[:2] and (before := (cell["calibration_rows"], cell["test_rows"])) != now:
            raise BadFile(
                f"{results}: holds fits of {source.dataset}, {source.network} with {' and '.join(before)} rows; the "
                f"file has {' and '.join(now)}. Name another file with --results, or delete those lines"
            )


if __name__ == "__main__":
    sys.exit(main())
