"""Sets of logits -> the test NLL of `auto` with and without torch, fitted on 100 to 500 calibration rows.

Run: python -m experiments.accuracy.without_torch --logits DIR (writes results/without_torch.md)

Without torch, `auto` leaves out g-layers. The rows of a draw are the first ones of a random order, the same for both.
"""

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from experiments.stamp import write_page

from glayers import AutoCalibrator, Predictions, metrics
from glayers.calibrators import auto
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "without_torch.md"
SIZES, DRAWS = (100, 250, 500), 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = {file.stem: np.load(file) for file in sorted(options.logits.glob("*.npz"))}
    by_set: dict[str, list[str]] = {name: [name] for name in sets}
    means = [["rows", "with torch", "without torch", "largest loss without", "processor seconds with", "without"]]
    for size in SIZES:
        found = np.array([[one(held, size, draw) for draw in range(DRAWS)] for held in sets.values()]).mean(axis=1)
        for name, (with_torch, without, *_) in zip(sets, found, strict=True):
            by_set[name] += [f"{with_torch:.4f}", f"{without:.4f}"]
        worst = int((found[:, 1] - found[:, 0]).argmax())
        added = f"{found[worst, 1] - found[worst, 0]:.4f} ({list(sets)[worst]})"
        mean = found.mean(axis=0)
        means.append([f"{size:,}", f"{mean[0]:.4f}", f"{mean[1]:.4f}", added, f"{mean[2]:.2f}", f"{mean[3]:.2f}"])
        print(means[-1], flush=True)
    heading = ["set", *(f"{size:,} rows, {kind} torch" for size in SIZES for kind in ("with", "without"))]
    text = f"""# `auto` with and without torch

Made by `python -m experiments.accuracy.without_torch --logits DIR`. Test NLL, mean over {DRAWS} draws of the
calibration rows; one thread.

{markdown_table(means)}

{markdown_table([heading, *by_set.values()])}
"""
    write_page(RESULTS, text)


def one(held: Mapping[str, Any], size: int, draw: int) -> list[float]:
    """Return the NLL with and without torch, and the processor seconds of both fits."""
    rows = np.random.default_rng(draw).permutation(len(held["y_val"]))[:size]
    test, losses, seconds = Predictions(held["logits_test"], held["y_test"]), [], []
    for hidden in (False, True):
        began = time.process_time()
        calibrator = AutoCalibrator(random_state=0, progress=False)
        if hidden:
            with mock.patch.object(auto, "find_spec", return_value=None):
                calibrator.fit(held["logits_val"][rows], held["y_val"][rows])
        else:
            calibrator.fit(held["logits_val"][rows], held["y_val"][rows])
        seconds.append(time.process_time() - began)
        losses.append(metrics.nll(calibrator.apply(test)))
    return [*losses, *seconds]


if __name__ == "__main__":
    main()
