"""Worlds with a known truth, and sets of logits -> how often prediction sets hold the label, and how large they are.

Writes experiments/results/prediction_sets.csv and the same as Markdown. In the simulated worlds, the logits of a row
are normal, the labels follow their softmax, and the model is overconfident by a factor of 1.3. The coverage of a draw
is the mean true probability of the classes in the sets of 1,000 new rows. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. All rows of a set are shuffled, 1,000 are calibration rows, and 2,000 others are new rows. MAPIE
(pip install mapie, used here only) takes half of the calibration rows for the calibrator and half for its thresholds.
"""

import argparse
import csv
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import AutoCalibrator, GlayersWarning, Predictions, TemperatureScaling, VectorScaling
from glayers.activations import softmax
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "prediction_sets.csv"
CLASSES = {2: 2.0, 10: 3.0, 100: 4.0}  # number of classes -> standard deviation of the logits
DRAWS = {100: 100, 1_000: 30, 10_000: 8}  # number of rows -> draws
LEVELS = (0.9, 0.95)
KINDS = {"least ambiguous": "lac", "adaptive": "aps"}  # ours -> MAPIE's
OVERCONFIDENCE, NEW_ROWS = 1.3, 1_000
SETS = ("imdb2_text", "cifar10_resnet20", "cifar100_vgg16", "tinyimagenet200_efficientnet_lite0")
SPLITS, MAPIE_SPLITS, SHARED_ROWS, SHARED_NEW = 100, 8, 1_000, 2_000
COLUMNS = ["data", "method", "rows", "kind", "level", "coverage", "error", "size", "coverage_mapie", "size_mapie"]
COLUMNS += ["coverage_mapie_random", "size_mapie_random"]


def methods() -> dict[str, Any]:
    return {
        "temperature": TemperatureScaling(),
        "vector": VectorScaling(),
        "auto": AutoCalibrator(time_budget=0, progress=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    warnings.simplefilter("ignore", GlayersWarning)
    parser.add_argument("--shared", action="store_true", help="keep the lines of simulated worlds as they are")
    parser.add_argument("--mapie", action="store_true", help="also make the columns of MAPIE, which are kept otherwise")
    options = parser.parse_args()
    lines = []
    before = lines_before()
    worlds = (line for line in before if line[0].startswith("simulated")) if options.shared else simulated()
    columns_of_mapie = {tuple(line[:5]): line[8:] for line in before}
    for line in chain(worlds, shared(options.logits, None if options.mapie else columns_of_mapie)):
        lines.append([str(cell) for cell in line])
        print(*line, flush=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    write_page(RESULTS.with_suffix(".md"), page(lines))


def lines_before() -> list[list[str]]:
    """Return the lines of the file."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def simulated() -> Iterator[list[Any]]:
    """Yield a line for each world, method, number of rows, kind and level."""
    for classes in CLASSES:
        for rows, draws in DRAWS.items():
            for name, method in methods().items():
                found: dict[Any, list[Any]] = {}
                for seed in range(draws):
                    for key, both in one_draw(method, classes, rows, seed).items():
                        found.setdefault(key, []).append(both)
                for (kind, level), numbers in found.items():
                    yield [f"simulated, {classes} classes", name, rows, kind, level, *summary(numbers), "", "", "", ""]


def world(classes: int, rows: int, rng: np.random.Generator) -> tuple[Predictions, Any]:
    """Return what the model says, and the true probabilities."""
    z = CLASSES[classes] * rng.normal(size=(rows, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(OVERCONFIDENCE * z, labels), softmax(z)


def one_draw(method: Any, classes: int, rows: int, seed: int) -> dict[Any, tuple[float, float]]:
    """Return the true coverage and the mean size of sets by kind and level."""
    rng = np.random.default_rng([seed, rows, classes])
    calibration, _ = world(classes, rows, rng)
    new, true = world(classes, NEW_ROWS, rng)
    fitted = method.fit_predictions(calibration)
    found = {}
    for kind in KINDS:
        for level in LEVELS:
            sets = fitted.predict_set(new.logits, level, kind)
            found[kind, level] = float((true * sets).sum(axis=1).mean()), float(sets.sum(axis=1).mean())
    return found


def summary(numbers: list[tuple[float, float]]) -> list[str]:
    """Return the mean coverage, its standard error over draws, and the mean size."""
    coverage, size = np.array(numbers).T
    error = coverage.std(ddof=1) / np.sqrt(len(coverage))
    return [f"{coverage.mean():.4f}", f"{error:.4f}", f"{size.mean():.3f}"]


def shared(folder: Path, known: dict[Any, list[str]] | None) -> Iterator[list[Any]]:
    """Yield a line for each set of logits, method, kind and level, beside MAPIE: its known columns, or new ones."""
    for name in SETS:
        parts = read_both(folder / f"{name}.npz")
        logits = np.concatenate([part.logits for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        for method_name in ("temperature", "auto"):
            ours: dict[Any, list[Any]] = {}
            theirs: dict[Any, list[Any]] = {}
            for seed in range(SPLITS):
                order = np.random.default_rng(seed).permutation(len(labels))
                rows = Predictions(logits[order], labels[order])
                calibration = rows.take(slice(SHARED_ROWS))
                new = rows.take(slice(SHARED_ROWS, SHARED_ROWS + SHARED_NEW))
                fitted = methods()[method_name].fit_predictions(calibration)
                for key in ((kind, level) for kind in KINDS for level in LEVELS):
                    ours.setdefault(key, []).append(measured(fitted.predict_set(new.logits, key[1], key[0]), new))
                if known is not None or seed >= MAPIE_SPLITS:
                    continue
                for key, sets in of_mapie(methods()[method_name], calibration, new).items():
                    theirs.setdefault(key, []).append(measured(sets, new))
            for (kind, level), numbers in ours.items():
                line = [name, method_name, SHARED_ROWS, kind, level, *summary(numbers)]
                if known is not None:
                    yield line + known.get((name, method_name, str(SHARED_ROWS), kind, str(level)), [""] * 4)
                    continue
                for randomised in (False, True):
                    cells = ["", "", ""]
                    if (kind, level, randomised) in theirs:
                        cells = summary(theirs[kind, level, randomised])
                    line += [cells[0], cells[2]]
                yield line


def measured(sets: Any, new: Predictions) -> tuple[float, float]:
    return float(sets[np.arange(len(new)), new.labels].mean()), float(sets.sum(axis=1).mean())


def of_mapie(method: Any, calibration: Predictions, new: Predictions) -> dict[Any, Any]:
    """Return the sets of MAPIE by kind and level, with half of the rows for the calibrator, and half for thresholds."""
    from mapie.classification import SplitConformalClassifier

    half = len(calibration) // 2
    fitted = method.fit_predictions(calibration.take(slice(half)))
    rest = calibration.take(slice(half, None))
    found = {}
    for kind, score in KINDS.items():
        if kind == "adaptive" and calibration.n_classes == 2:  # which MAPIE refuses
            continue
        conformal = SplitConformalClassifier(
            fitted, confidence_level=list(LEVELS), conformity_score=score, prefit=True, random_state=0
        )
        conformal.conformalize(rest.logits, rest.labels)
        for randomised in (False, True) if kind == "adaptive" else (False,):
            last = "randomized" if randomised else True  # True is MAPIE's default
            _, sets = conformal.predict_set(new.logits, conformity_score_params={"include_last_label": last})
            for place, level in enumerate(LEVELS):
                found[kind, level, randomised] = sets[:, :, place]
    return found


def page(lines: list[list[str]]) -> str:
    """Return the table, and in words how many lines are within sampling error."""
    known = [line for line in lines if line[0].startswith("simulated")]
    of_sets = [line for line in lines if line not in known]
    text = (
        f"Made by `python -m experiments.statistics.prediction_sets --logits DIR`. Mean coverage and size; `error` is "
        f"the standard error of the coverage over draws of the calibration rows. Of {len(known)} lines with a known "
        f"truth, {apart(known)}. Of {len(of_sets)} lines of sets of logits, {apart(of_sets)}. MAPIE's adaptive sets by "
        f"default always hold the class at which the sum passes the threshold, and cover more than the level; `random` "
        f"leaves that class out at random. It has none for two classes. Lines with the same data and rows share their "
        f"draws, so they err together. A set of logits has {SPLITS} splits, of which MAPIE has the first "
        f"{MAPIE_SPLITS}. They share their rows, so their error is a little too small.\n\n"
    )
    heads = [name.replace("_", " ") for name in COLUMNS]
    return text + markdown_table([heads, *lines], text_columns=2) + "\n"


def apart(lines: list[list[str]]) -> str:
    """Say how many lines are how many standard errors from the level."""
    errors = np.array([(float(line[5]) - float(line[4])) / float(line[6]) for line in lines])
    return (
        f"{np.sum(errors < -2)} are below the level by more than two standard errors, {np.sum(errors < -3)} by more "
        f"than three; {np.sum(errors > 2)} are above by more than two, and {np.sum(errors > 3)} by more than three"
    )


if __name__ == "__main__":
    main()
