"""Our calibrators and every peer that is installed, on the same arrays -> times, memory and quality: `make bench`.

Each fit runs in a process of its own, methods in turns. A table gives the median of several runs with the smallest and
the largest, processor and wall time, the peak memory above the input, and beside each time the NLL and KS on new rows:
nobody is fast by being wrong. The data are those of `simulation.py`, whose best possible NLL is known.

    python -m benchmarks.bench --sizes 5000x10 5000x100 25000x1000 --results times.csv --plot times.png
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulation import gaussian_mixture

from glayers import metrics

SIZES = ("5000x10", "5000x100", "25000x1000")
TEST_ROWS = 20_000
Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], Predict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="ROWSxCLASSES")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a fit is given up")
    parser.add_argument("--results", type=Path, help="also write every run to this CSV file")
    parser.add_argument("--plot", type=Path, help="also draw processor time against rows and classes")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "SIZE"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one:
        print(json.dumps(one_fit(*settings.one)))
        return
    runs: list[dict[str, Any]] = []
    for size in settings.sizes:
        given_up: set[str] = set()
        for _ in range(settings.repeats):
            for method in settings.methods:
                if find_spec(METHODS[method][0]) is not None and method not in given_up:
                    made = in_own_process(method, size, settings.limit)
                    runs.append(made)
                    given_up |= {method} if "problem" in made else set()
        print(table(size, [run for run in runs if run["size"] == size]), flush=True)
    if settings.results:
        names = list(dict.fromkeys(name for run in runs for name in run))
        with settings.results.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(runs)
    if settings.plot:
        draw(runs, settings.plot)


def in_own_process(method: str, size: str, limit: float) -> dict[str, Any]:
    """Return the numbers of one fit, or the problem that ended it."""
    words = [sys.executable, "-m", "benchmarks.bench", "--one", method, size]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)  # noqa: S603 (our own words)
    except subprocess.TimeoutExpired:
        return {"method": method, "size": size, "problem": f"not done in {limit:g} s"}
    if done.returncode:
        return {"method": method, "size": size, "problem": (done.stderr.strip().splitlines() or ["killed"])[-1][:100]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one_fit(method: str, size: str) -> dict[str, Any]:
    """Fit once, after a small fit that imports and compiles whatever the method needs."""
    warnings.simplefilter("ignore")
    rows, classes = map(int, size.split("x"))
    fit = METHODS[method][1]
    logits, labels, _ = gaussian_mixture(rows, classes)
    test = gaussian_mixture(TEST_ROWS, classes, seed=1)
    some = gaussian_mixture(max(300, 2 * classes), classes, seed=2)
    fit(some.logits, some.labels)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, busy = time.perf_counter(), time.process_time()
    predict = fit(logits, labels)
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    found = np.asarray(predict(test.logits))
    return {
        "method": method,
        "size": size,
        "cpu_seconds": busy,
        "wall_seconds": wall,
        "peak_mb": peak,
        "nll": metrics.nll(found, test.labels),
        "oracle_nll": float(test.oracle_losses.mean()),
        "ks": metrics.ks(found, test.labels),
        "cores": len(os.sched_getaffinity(0)),
    }


def table(size: str, runs: list[dict[str, Any]]) -> str:
    """Return the medians of one size as Markdown, with the smallest and the largest in brackets."""
    lines = [f"\n## {size.replace('x', ' rows x ')} classes\n"]
    done = [run for run in runs if "problem" not in run]
    if done:
        lines[0] += f"\nThe best possible NLL on the test rows is {done[0]['oracle_nll']:.5f}.\n"
    lines += ["| method | CPU s | wall s | peak MB | NLL | KS, % |", "|---|---|---|---|---|---|"]
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in done if run["method"] == method]
        if not own:
            problem = next(run["problem"] for run in runs if run["method"] == method)
            lines.append(f"| {method} | {problem} | | | | |")
            continue
        busy, wall = (spread([run[name] for run in own]) for name in ("cpu_seconds", "wall_seconds"))
        peak = statistics.median(run["peak_mb"] for run in own)
        lines.append(f"| {method} | {busy} | {wall} | {peak:.0f} | {own[0]['nll']:.5f} | {100 * own[0]['ks']:.2f} |")
    return "\n".join(lines)


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3g} ({min(seconds):.3g} to {max(seconds):.3g})"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw median processor seconds against the number of logits, one line per method and number of classes."""
    import matplotlib.pyplot as plt

    times: dict[tuple[str, int], dict[int, list[float]]] = {}
    for run in (each for each in runs if "problem" not in each):
        rows, classes = map(int, run["size"].split("x"))
        times.setdefault((run["method"], classes), {}).setdefault(rows, []).append(run["cpu_seconds"])
    figure, axes = plt.subplots(figsize=(7, 5))
    methods = list(dict.fromkeys(method for method, _ in times))
    for (method, classes), by_rows in sorted(times.items()):
        seconds = [statistics.median(by_rows[rows]) for rows in sorted(by_rows)]
        axes.plot(sorted(by_rows), seconds, marker="o", color=f"C{methods.index(method)}")
        axes.annotate(f"{method}, {classes}", (max(by_rows), seconds[-1]), fontsize=7)
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="processor seconds")
    figure.savefig(path, dpi=150, bbox_inches="tight")


def ours(name: str, **settings: Any) -> Fit:
    """Return the fit of one of our calibrators."""

    def fit(logits: np.ndarray, labels: np.ndarray) -> Predict:
        from glayers.comparison import unfitted

        return unfitted(name).set_params(**settings).fit(logits, labels).predict_proba

    return fit


def of_probmetrics(name: str) -> Fit:
    """Return the fit of a calibrator of probmetrics, in float64."""

    def fit(logits: np.ndarray, labels: np.ndarray) -> Predict:
        from probmetrics import calibrators

        made = getattr(calibrators, name)()
        made.fit(softmax(logits), labels)
        return lambda new: np.asarray(made.predict_proba(softmax(new)))

    return fit


def of_scikit_learn(logits: np.ndarray, labels: np.ndarray) -> Predict:
    """Fit scikit-learn's own class, without the estimator around it, which would only add time."""
    from sklearn.calibration import _TemperatureScaling

    beta = float(_TemperatureScaling().fit(logits, labels).beta_)
    return lambda new: softmax(beta * new.astype(np.float64))


def of_netcal(logits: np.ndarray, labels: np.ndarray) -> Predict:
    from netcal.scaling import TemperatureScaling

    made = TemperatureScaling()
    made.fit(softmax(logits), labels)
    return lambda new: np.asarray(made.transform(softmax(new)))


def of_torch_uncertainty(logits: np.ndarray, labels: np.ndarray) -> Predict:
    import torch

    rows = torch.utils.data.TensorDataset(torch.as_tensor(logits), torch.as_tensor(labels))
    made = import_module("torch_uncertainty.post_processing").TemperatureScaler(model=torch.nn.Identity())
    made.fit(torch.utils.data.DataLoader(rows, batch_size=1_000), progress=False)
    with torch.no_grad():
        factor = 1 / float(made.temperature[0])
    return lambda new: softmax(factor * new.astype(np.float64))


def of_dirichletcal(logits: np.ndarray, labels: np.ndarray) -> Predict:
    of = import_module("dirichletcal.calib.fulldirichlet")
    made = of.FullDirichletCalibrator(reg_lambda=1e-3, reg_mu=1e-3)
    made.fit(softmax(logits), labels)
    return lambda new: np.asarray(made.predict_proba(softmax(new)))


def softmax(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


# The module that must be there, and the fit.
METHODS: dict[str, tuple[str, Fit]] = {
    "glayers temperature": ("glayers", ours("temperature")),
    "scikit-learn temperature": ("sklearn", of_scikit_learn),
    "probmetrics temperature": ("probmetrics", of_probmetrics("TemperatureScalingCalibrator")),
    "netcal temperature": ("netcal", of_netcal),
    "torch-uncertainty temperature": ("torch_uncertainty", of_torch_uncertainty),
    "glayers vector": ("glayers", ours("vector")),
    "probmetrics SVS": ("probmetrics", of_probmetrics("SVSCalibrator")),
    "probmetrics SMS": ("probmetrics", of_probmetrics("SMSCalibrator")),
    "dirichletcal": ("dirichletcal", of_dirichletcal),
    "glayers shared g-layers": ("glayers", ours("shared-g-layers", class_part="temperature")),
    "glayers g-layers": ("glayers", ours("g-layers")),
    "glayers auto": ("glayers", ours("auto")),
}


if __name__ == "__main__":
    main()
