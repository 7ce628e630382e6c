"""Sets of logits -> how well `glayers.estimate` tells the accuracy of rows whose labels it does not see.

Writes experiments/results/estimates.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test; sets with more than ten classes are left out. All rows of a set are shuffled; half of them, at most
5,000, are calibration rows, and 1,000 others are new rows. "Resampled" draws the new rows with other class frequencies;
"another network" takes new rows whose logits are those of a network with another temperature. Errors are in points of
accuracy, means over splits. Where `estimate` adapts the calibrator first, the truth is the accuracy of the adapted one.
"""

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import AutoCalibrator, GlayersError, Predictions, TemperatureScaling, estimate
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "estimates.csv"
MOST_CLASSES = 10  # of the sets; more take several minutes per line
KINDS = ("the same kind", "resampled classes", "another network")
SPLITS, NEW_ROWS, MOST, LEVEL = 20, 1_000, 5_000, 0.9
SHIFT_LEVEL = 0.99  # at which `estimate` adapts
COLUMNS = ["set", "rows", "tried", "refused", "adapted", "covered", "error", "error_temperature", "error_uncalibrated"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    lines: list[list[Any]] = []
    of_all: dict[str, list[tuple[float, ...] | None]] = {kind: [] for kind in KINDS}
    for file in sorted(parser.parse_args().logits.glob("*.npz")):
        parts = read_both(file)
        if parts[0].n_classes > MOST_CLASSES or "longtail" in file.stem:  # whose two parts are not of one kind
            continue
        logits = np.concatenate([part.logits for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        for kind in KINDS:
            found = [one(logits, labels, kind, seed) for seed in range(SPLITS)]
            of_all[kind] += found
            lines.append([file.stem, kind, *summary(found)])
            print(*lines[-1], flush=True)
    lines += [["all", kind, *summary(found)] for kind, found in of_all.items()]
    with RESULTS.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([COLUMNS, *lines])
    heads = [name.replace("_", " ") for name in COLUMNS]
    text = markdown_table([heads, *([str(cell) for cell in line] for line in lines)])
    head = (
        f"Made by `python -m experiments.statistics.estimates --logits DIR`. {SPLITS} splits per line. "
        f"Intervals are meant to cover {100 * LEVEL:g} %; errors are mean absolute errors in points. "
        "Where the calibrator was adapted, the truth is the accuracy of the adapted one.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), head + text + "\n")


def one(logits: np.ndarray, labels: np.ndarray, kind: str, seed: int) -> tuple[float, ...] | None:
    """Return adapted, covered, and the errors of the three estimates; None if the rows are refused."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    half = min(MOST, len(labels) // 2)
    calibration = Predictions(logits[order[:half]], labels[order[:half]])
    rest = order[half:]
    if kind == "resampled classes":
        wanted = rng.dirichlet(np.full(labels.max() + 1, 2.0))
        chance = wanted[labels[rest]]
        new = rng.choice(rest, min(NEW_ROWS, len(rest)), p=chance / chance.sum())
    else:
        new = rest[:NEW_ROWS]
    said = logits[new] * (1.4 if kind == "another network" else 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        auto = AutoCalibrator(time_budget=0, progress=False).fit_predictions(calibration)
        temperature = TemperatureScaling().fit_predictions(calibration)
        try:
            found = estimate(auto, said, level=LEVEL, random_state=seed)
        except GlayersError:
            return None
        suited = auto.adapt(said, level=SHIFT_LEVEL) if found.adapted else auto
    right = float((suited.predict(said) == labels[new]).mean())
    raw = Predictions(said, labels[new]).probabilities().max(axis=1).mean()
    plain = temperature.predict_proba(said).max(axis=1).mean()
    own = float((said.argmax(axis=1) == labels[new]).mean())
    covered = found.accuracy.low <= right <= found.accuracy.high
    return found.adapted, covered, abs(found.accuracy.value - right), abs(plain - own), abs(raw - own)


def summary(found: list[tuple[float, ...] | None]) -> list[str]:
    kept = [numbers for numbers in found if numbers is not None]
    counts = [str(len(found)), f"{1 - len(kept) / len(found):.2f}"]
    if not kept:
        return [*counts, "", "", "", "", ""]
    adapted, covered, *errors = np.mean(np.array(kept, dtype=float), axis=0)
    return [*counts, f"{adapted:.2f}", f"{covered:.2f}", *(f"{100 * error:.2f}" for error in errors)]


if __name__ == "__main__":
    main()
