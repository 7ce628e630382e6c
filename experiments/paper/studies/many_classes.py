"""Sets of 100 and more classes -> the paper's recipe beside temperature scaling: fitted on calibration, scored on test.

Run: python -m experiments.paper.studies.many_classes --logits DIR [--depths 1 3] [--sets SET ...]. Writes
results/many_classes.csv and the same as Markdown. A fit in the file is not repeated. The search of one fit takes
minutes at one layer, hours at three.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.paper.studies.lines import NONE, Line, different, markdown, page, read_lines, where, write_lines
from experiments.paper.studies.scoring import METRICS, Outcome, noted, scored
from experiments.paper.studies.sizes import chosen
from experiments.stamp import write_page

from glayers import PaperGLayers, Predictions, TemperatureScaling
from glayers.arrays import Array

EXPERIMENTS = Path(__file__).parents[2]
RESULTS = EXPERIMENTS / "results" / "many_classes.csv"
COLUMNS = ("set", "method", "learning_rate", "weight_decay", "settings_tried", *METRICS, "note")
LEAST = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the missing fits, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--sets", nargs="+", metavar="SET", help="all with at least 100 classes, unless given")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="CSV")
    asked = parser.parse_args(arguments)
    lines = read_lines(asked.results)
    with (EXPERIMENTS / "accuracy" / "sets_of_logits.csv").open(encoding="utf-8", newline="") as file:
        sets = asked.sets or [row["set"] for row in csv.DictReader(file)]
    for depth in [None, 0, *asked.depths]:
        for name in sets:
            calibration, test = read_both(asked.logits / f"{name}.npz")
            method = {None: "uncalibrated", 0: "temperature"}.get(depth, f"g, {depth} layer{'s' * (depth != 1)}")
            if test.n_classes >= LEAST and not where(lines, set=name, method=method):
                line = {"set": name, "method": method} | fitted(depth, calibration, test)
                lines.append(line)
                lines.sort(key=lambda line: (line["set"], line["method"] != "uncalibrated", line["method"][:2] == "g,"))
                write_lines(asked.results, COLUMNS, lines)
                print(" ".join(f"{column} {value}" for column, value in line.items()), flush=True)
    text = page(
        "Made by `python -m experiments.paper.studies.many_classes --logits DIR`. The paper's recipe with its "
        "search, h = 3, seed 0.",
        table(lines),
    )
    write_page(asked.results.with_suffix(".md"), text)
    return 0


def fitted(depth: int | None, calibration: Predictions, test: Predictions) -> Line:
    """Fit g with so many layers, 0 for temperature scaling and None for nothing; return scores and settings."""
    nothing = dict.fromkeys(("learning_rate", "weight_decay", "settings_tried"), "")
    if depth is None:
        return nothing | scored(Outcome(test.probabilities(), ""), test)
    method = PaperGLayers(depth, 3, random_state=0) if depth else TemperatureScaling()

    def predict() -> Array:
        return method.fit(calibration.logits, calibration.labels).predict_proba(test.logits)

    line = scored(noted(predict), test)
    if isinstance(method, PaperGLayers):
        nothing = chosen(method) | {"settings_tried": str(len(method.cv_results_["held_out_loss"]))}
    return nothing | line


def table(lines: list[Line]) -> str:
    """Return one row per set and method, and the mean of the sets that all methods have."""
    shown = ("learning_rate", "weight_decay", "settings_tried")
    rows = [
        [line["set"], line["method"], *(line[column] or NONE for column in shown), *(_cell(line, m) for m in METRICS)]
        for line in lines
    ]
    for method in different(lines, "method"):
        mine = where(lines, method=method)
        if len(mine) == len(different(lines, "set")):
            means = [{m: str(np.mean([float(line[m]) for line in mine]))} for m in METRICS]
            cells = [_cell(mean, m) for mean, m in zip(means, METRICS, strict=True)]
            rows.append(["*mean*", method, *[NONE] * len(shown), *cells])
    heading = ["set", "method", "learning rate", "weight decay", "settings tried"]
    return markdown([*heading, *(about.heading for about in METRICS.values())], rows, words=2)


def _cell(line: Line, metric: str) -> str:
    return f"{float(line[metric]):.{METRICS[metric].digits}f}"


if __name__ == "__main__":
    main()
