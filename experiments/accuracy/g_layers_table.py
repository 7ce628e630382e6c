"""Sets of logits -> g-layers (default recipe) beside temperature scaling: fitted on calibration, scored on test rows.

Writes experiments/results/g_layers_default.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. `difference` is the paired difference in test NLL against temperature scaling.
"""

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import GLayers, GlayersWarning, Predictions, TemperatureScaling, metrics

RESULTS = Path(__file__).parents[1] / "results" / "g_layers_default.csv"
SHIFTED = "cifar10_longtail_resnet110"  # class frequencies differ between its calibration and test rows
COLUMNS = ["set", "method", "nll", "difference", "standard_error", "ks", "ece", "brier", "accuracy", "note"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    rows = []
    for file in sorted(settings.logits.glob("*.npz")):
        started = time.perf_counter()
        calibration, test = read_both(file)
        rows += one_set(file.stem, calibration, test, settings.seed)
        print(f"{file.stem}: {time.perf_counter() - started:.1f} s", flush=True)
    write(rows)
    print(RESULTS.with_suffix(".md").read_text())


def one_set(name: str, calibration: Predictions, test: Predictions, seed: int) -> list[dict[str, str]]:
    outputs = {"uncalibrated": test.logits.astype(np.float64)}
    notes = {}
    for method, calibrator in {"temperature": TemperatureScaling(), "g-layers": GLayers(random_state=seed)}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GlayersWarning)
            outputs[method] = calibrator.fit(calibration.logits, calibration.labels).transform(test.logits)
        notes[method] = "; ".join(str(warning.message) for warning in caught)
    losses = {method: row_losses(logits, test.labels) for method, logits in outputs.items()}
    return [
        score(name, method, logits, test, losses[method] - losses["temperature"], notes.get(method, ""))
        for method, logits in outputs.items()
    ]


def row_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]


def score(
    name: str, method: str, logits: np.ndarray, test: Predictions, difference: np.ndarray, note: str
) -> dict[str, str]:
    p = Predictions(logits, test.labels).probabilities()
    numbers = {
        "nll": metrics.nll(Predictions(logits, test.labels)),
        "difference": float(difference.mean()),
        "standard_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        "ks": 100 * metrics.ks(p, test.labels),
        "ece": 100 * metrics.ece(p, test.labels),
        "brier": 100 * metrics.brier(p, test.labels),
        "accuracy": 100 * metrics.accuracy(p, test.labels),
    }
    return {"set": name, "method": method, **{key: f"{value:.4f}" for key, value in numbers.items()}, "note": note}


def write(rows: list[dict[str, str]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    shown = [column for column in COLUMNS if column != "note"]
    lines = ["| " + " | ".join(shown) + " |", "|---|---|" + "---:|" * (len(shown) - 2)]
    lines += ["| " + " | ".join(row[column] for column in shown) + " |" for row in rows]
    ours = [row for row in rows if row["method"] == "g-layers"]
    lower = sum(float(row["difference"]) < 0 for row in ours)
    mean = np.mean([float(row["difference"]) for row in ours])
    lines += ["", f"NLL below temperature scaling's on {lower} of {len(ours)} sets, by {-mean:.4f} on average."]
    ks = {
        method: np.mean([float(row["ks"]) for row in rows if row["method"] == method and row["set"] != SHIFTED])
        for method in ("temperature", "g-layers")
    }
    lines += ["", f"Mean KS without {SHIFTED}: {ks['g-layers']:.2f} %; temperature scaling {ks['temperature']:.2f} %."]
    write_page(RESULTS.with_suffix(".md"), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
