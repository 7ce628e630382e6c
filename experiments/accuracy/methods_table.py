"""Sets of logits -> every method beside the strongest peers: fitted on calibration rows, scored on test rows.

Writes experiments/results/methods.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. Peers: temperature scaling, SVS and SMS of probmetrics, in float64. A set in the file is not fitted
again: delete its lines, or the file, to repeat it. `--methods auto` fits these again on every set, and keeps the rest.
"""

import argparse
import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments.logit_files import read_both
from experiments.stamp import write_page
from probmetrics.calibrators import SMSCalibrator, SVSCalibrator, TemperatureScalingCalibrator

from glayers import Predictions, compare, metrics
from glayers.activations import log_softmax, softmax

RESULTS = Path(__file__).parents[1] / "results" / "methods.csv"
OURS = [
    "temperature",
    "vector",
    "matrix",
    "matrix-odir",
    "dirichlet",
    "order-invariant",
    "isotonic",
    "g-layers",
    "shared-g-layers",
    "auto",
]
PEERS: dict[str, Callable[[], object]] = {
    "probmetrics TS": TemperatureScalingCalibrator,
    "probmetrics SVS": SVSCalibrator,
    "probmetrics SMS": SMSCalibrator,
}
RIVAL, BASELINE, BEST = "probmetrics SMS", "temperature", "auto"
# Columns of the file: heading and digits in the table.
METRICS = {
    "nll": ("NLL", 4),
    "ks": ("KS, percent", 2),
    "ece": ("ECE, percent", 2),
    "brier": ("Brier, mean over classes, percent", 3),
    "accuracy": ("Accuracy, percent", 2),
}
PAIRED = ["nll_less_sms", "error_less_sms", "nll_less_temperature", "error_less_temperature"]
COLUMNS = ["set", "method", *METRICS, *PAIRED, "note"]
# Its test rows are balanced, its calibration rows are not: no method fitted on these can be calibrated on those.
SHIFTED = "cifar10_longtail_resnet110"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--methods", default="", help="fit these again, such as auto,vector")
    options = parser.parse_args()
    again = [name for name in options.methods.split(",") if name]
    rows = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {row["set"] for row in rows}
    for file in sorted(options.logits.glob("*.npz")):
        if again or file.stem not in done:
            calibration, test = read_both(file)
            if again:
                found = one_set(file.stem, calibration, test, [*again, BASELINE], [RIVAL])
                new = {row["method"]: row for row in found if row["method"] in again}
                rows = [new.get(row["method"], row) if row["set"] == file.stem else row for row in rows]
            else:
                rows += one_set(file.stem, calibration, test, OURS, list(PEERS))
            write_csv(sorted(rows, key=lambda row: row["set"]))
            print(f"{file.stem}: {len(rows)} lines", flush=True)
    text = as_markdown(sorted(rows, key=lambda row: row["set"]))
    write_page(RESULTS.with_suffix(".md"), text)
    print(text)


def one_set(
    name: str, calibration: Predictions, test: Predictions, ours: list[str], peers: list[str]
) -> list[dict[str, str]]:
    found = compare(calibration, test, ours)
    if found.failed:
        raise RuntimeError(f"{name}: {found.failed}")
    outputs = {}
    for method in found.scorecards:
        calibrated = found.predictions(method)
        if not isinstance(calibrated, Predictions):
            raise TypeError(f"{name}: confidences have no classes")
        outputs[method] = np.asarray(calibrated.logits, np.float64)
    outputs |= {peer: peer_logits(PEERS[peer](), calibration, test) for peer in peers}
    losses = {method: -log_softmax(z)[np.arange(len(test)), test.labels] for method, z in outputs.items()}
    notes = {method: "; ".join(fitted.diagnostics_.notes) for method, fitted in found.calibrators.items()}
    return [score(name, method, z, test, losses, notes.get(method, "")) for method, z in outputs.items()]


def peer_logits(peer: object, calibration: Predictions, test: Predictions) -> np.ndarray:
    """Fit a peer on probabilities, its input format, and return the logarithm of its output."""
    rows, new = (softmax(part.logits.astype(np.float64)) for part in (calibration, test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the peer's own libraries
        said = peer.fit(rows, calibration.labels).predict_proba(new)  # type: ignore[attr-defined]  # no types there
    return np.log(np.maximum(said, np.finfo(np.float64).tiny))


def score(
    name: str, method: str, logits: np.ndarray, test: Predictions, losses: dict[str, np.ndarray], note: str
) -> dict[str, str]:
    p = softmax(logits)
    numbers = {
        "nll": metrics.nll(Predictions(logits, test.labels)),
        "ks": 100 * metrics.ks(p, test.labels),
        "ece": 100 * metrics.ece(p, test.labels),
        "brier": 100 * metrics.brier(p, test.labels),
        "accuracy": 100 * metrics.accuracy(p, test.labels),
    }
    for other, (mean, error) in ((RIVAL, PAIRED[:2]), (BASELINE, PAIRED[2:])):
        difference = losses[method] - losses[other]
        numbers[mean] = float(difference.mean())
        numbers[error] = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    return {"set": name, "method": method, **{key: f"{value:.5f}" for key, value in numbers.items()}, "note": note}


def write_csv(rows: list[dict[str, str]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def as_markdown(rows: list[dict[str, str]]) -> str:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    sets = list(dict.fromkeys(row["set"] for row in rows))
    value = {(row["set"], row["method"]): row for row in rows}
    lines = ["Made by `make table-methods LOGITS=DIR`. Fitted on calibration rows, scored on test rows.", ""]
    lines += summary(rows)
    for column, (heading, digits) in METRICS.items():
        lines += ["", f"## {heading}", "", "| set | " + " | ".join(methods) + " |", "|---|" + "---:|" * len(methods)]
        for name in sets:
            cells = [f"{float(value[name, method][column]):.{digits}f}" for method in methods]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        means = [
            np.mean([float(value[name, method][column]) for name in sets if name != SHIFTED]) for method in methods
        ]
        lines.append(f"| *mean without {SHIFTED}* | " + " | ".join(f"{mean:.{digits}f}" for mean in means) + " |")
    notes = [f"- {row['set']}, {row['method']}: {row['note']}" for row in rows if row["note"]]
    return "\n".join([*lines, "", "## What the fits said", "", *(notes or ["Nothing."])]) + "\n"


def summary(rows: list[dict[str, str]]) -> list[str]:
    """The gain of `auto` over the strongest peer and over temperature scaling, paired over test rows."""
    lines = []
    best = [row for row in rows if row["method"] == BEST]
    for other, mean, error in ((RIVAL, *PAIRED[:2]), (f"our {BASELINE}", *PAIRED[2:])):
        gains = [(float(row[mean]), float(row[error])) for row in best]
        lower = sum(gain < 0 for gain, _ in gains)
        surely = sum(gain < -2 * wide for gain, wide in gains)
        worse = [row["set"] for row, (gain, wide) in zip(best, gains, strict=True) if gain > 2 * wide]
        lines.append(
            f"- `{BEST}` against {other}: test NLL lower on {lower} of {len(best)} sets, by more than two paired "
            f"standard errors on {surely}; higher by more than two on {', '.join(worse) or 'none'}."
        )
    for method in (BEST, "shared-g-layers", BASELINE, RIVAL):
        ks = [float(row["ks"]) for row in rows if row["method"] == method and row["set"] != SHIFTED]
        lines.append(f"- mean KS of {method} over the {len(ks)} sets without class shift: {np.mean(ks):.3f} percent.")
    return lines


if __name__ == "__main__":
    main()
