"""Our calibrators and every peer that is installed, on the same arrays -> times, memory and quality: `make bench`.

Each fit runs in a process of its own, methods in turns. A table gives the median of several runs with the smallest and
the largest, processor and wall time, the peak memory above the input, and beside each time the NLL and KS on new rows:
nobody is fast by being wrong. The data are those of `simulation.py`, whose best possible NLL is known.

    python -m benchmarks.bench --sizes 5000x10 5000x100 --results times.csv
    python -m benchmarks.bench --sizes 25000x1000 --repeats 1 --results times.csv
    python -m benchmarks.bench --sizes --results times.csv --page times.md --plot times.png

Runs are added to the CSV file as they end; the pages and the plot are made of all runs in it.
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulation import gaussian_mixture
from experiments.stamp import write_page

from glayers import metrics

SIZES = ("5000x10", "5000x100", "25000x1000")
IN_SHORT = (
    "glayers temperature",
    "scikit-learn temperature",
    "probmetrics temperature",
    "probmetrics SMS",
    "glayers auto",
)
TEST_ROWS = 20_000
Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], Predict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=SIZES, metavar="ROWSxCLASSES")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a fit is given up")
    parser.add_argument("--results", type=Path, help="add every run to this CSV file, and read earlier ones from it")
    parser.add_argument("--page", type=Path, help="also write the tables to this Markdown file")
    parser.add_argument("--plot", type=Path, help="also draw processor time against rows and classes")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "SIZE"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one:
        print(json.dumps(one_fit(*settings.one)))
        return
    runs = read(settings.results) if settings.results and settings.results.exists() else []
    for size in settings.sizes:
        given_up: set[str] = set()
        for _ in range(settings.repeats):
            for method in settings.methods:
                if find_spec(METHODS[method][0]) is not None and method not in given_up:
                    made = in_own_process(method, size, settings.limit)
                    runs.append(made)
                    given_up |= {method} if "problem" in made else set()
                    if settings.results:
                        write(runs, settings.results)
        print(table(size, runs), flush=True)
    if settings.page:
        write_page(settings.page, page(runs))
    if settings.plot:
        draw(runs, settings.plot)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a CSV file; empty cells are left out."""
    with path.open(newline="") as file:
        lines = [{name: cell for name, cell in line.items() if cell} for line in csv.DictReader(file)]
    words = ("method", "size", "problem")
    return [{name: cell if name in words else float(cell) for name, cell in line.items()} for line in lines]


def write(runs: list[dict[str, Any]], path: Path) -> None:
    """Write all runs, in the order in which they were made."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, dict.fromkeys(name for run in runs for name in run), lineterminator="\n")
        writer.writeheader()
        writer.writerows({n: f"{v:.6g}" if isinstance(v, float) else v for n, v in run.items()} for run in runs)


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
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, busy = time.perf_counter(), time.process_time()
    predict = fit(logits, labels)
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    found = np.asarray(predict(test.logits))
    plain, own = (min(seconds_of(call, test.logits) for _ in range(3)) for call in (softmax, predict))
    return {
        "method": method,
        "size": size,
        "cpu_seconds": busy,
        "wall_seconds": wall,
        "peak_mb": peak,
        "nll": metrics.nll(found, test.labels),
        "oracle_nll": float(test.oracle_losses.mean()),
        "ks": metrics.ks(found, test.labels),
        "predict_per_softmax": own / plain,
        "load": load,
        "cores": len(os.sched_getaffinity(0)),
    }


def seconds_of(call: Predict, logits: np.ndarray) -> float:
    began = time.process_time()
    call(logits)
    return time.process_time() - began


def page(runs: list[dict[str, Any]]) -> str:
    """Return the tables of all sizes as Markdown, with what a reader must know to judge them."""
    cores = int(max(run["cores"] for run in runs if "cores" in run))
    loads = [run["load"] for run in runs if "load" in run]
    missing = [method for method, (module, _) in METHODS.items() if method not in {run["method"] for run in runs}]
    about = (
        "Made by `python -m benchmarks.bench`; its first lines say how. Each fit ran in a process of its own, on one "
        f"thread of a machine with {cores} cores. Numbers are medians, with the smallest and the largest in brackets "
        "where a method ran several times. CPU s is processor time, wall s elapsed time, and peak MB the memory above "
        "the input. predict is the processor time of `predict_proba` on 20,000 rows, divided by that of a softmax in "
        "NumPy. NLL and KS are those of 20,000 new rows. "
        f"The load of the machine was {min(loads):.1f} to {max(loads):.1f} (median {statistics.median(loads):.1f})."
    )
    lines = ["# Time, memory and quality of fits", "", *textwrap.wrap(about, 120)]
    if statistics.median(loads) > cores:
        lines.append("Other work took part of its time, so compare processor times, not elapsed ones.")
    lines += ["", f"Not measured: {', '.join(missing)}."] if missing else []
    sizes = sorted({run["size"] for run in runs}, key=lambda size: [int(n) for n in size.split("x")][::-1])
    return "\n".join([*lines, *(table(size, runs) for size in sizes)]) + "\n"


def table(size: str, runs: list[dict[str, Any]]) -> str:
    """Return the medians of one size as Markdown, with the smallest and the largest in brackets."""
    runs = [run for run in runs if run["size"] == size]
    rows, classes = map(int, size.split("x"))
    lines = [f"\n## {rows:,} rows x {classes:,} classes\n"]
    done = [run for run in runs if "problem" not in run]
    if done:
        lines[0] += f"\nThe best possible NLL on the test rows is {done[0]['oracle_nll']:.5f}.\n"
    lines += ["| method | CPU s | wall s | peak MB | predict | NLL | KS, % |", "|---|---|---|---|---|---|---|"]
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in done if run["method"] == method]
        if not own:
            problem = next(run["problem"] for run in runs if run["method"] == method)
            lines.append(f"| {method} | {problem} | | | | | |")
            continue
        busy, wall = (spread([run[name] for run in own]) for name in ("cpu_seconds", "wall_seconds"))
        peak = statistics.median(run["peak_mb"] for run in own)
        predict = statistics.median(run["predict_per_softmax"] for run in own)
        quality = f"{own[0]['nll']:.5f} | {100 * own[0]['ks']:.2f}"
        lines.append(f"| {method} | {busy} | {wall} | {peak:.0f} | {predict:.2g} | {quality} |")
    return "\n".join(lines)


def short(runs: list[dict[str, Any]]) -> str:
    """Return the medians of the usual sizes and of the methods that matter most, as the README shows them."""
    lines = ["| rows x classes | method | CPU s | NLL | peak MB |", "|---|---|---:|---:|---:|"]
    for size in SIZES:
        shown = "{:,} x {:,}".format(*map(int, size.split("x")))
        for method in IN_SHORT:
            own = [run for run in runs if (run["size"], run["method"]) == (size, method) and "problem" not in run]
            if own:
                busy, nll, peak = (statistics.median(run[n] for run in own) for n in ("cpu_seconds", "nll", "peak_mb"))
                lines.append(f"| {shown} | {method} | {busy:.2g} | {nll:.4f} | {peak:.0f} |")
                shown = ""
    return "\n".join(lines)


def spread(seconds: list[float]) -> str:
    ends = f" ({min(seconds):.3g} to {max(seconds):.3g})" if len(seconds) > 1 else ""
    return f"{statistics.median(seconds):.3g}{ends}"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw median processor seconds against rows, for the smallest number of classes, and against classes."""
    import matplotlib.pyplot as plt

    times: dict[tuple[str, int, int], list[float]] = {}
    for run in (each for each in runs if "problem" not in each):
        rows, classes = map(int, run["size"].split("x"))
        times.setdefault((run["method"], rows, classes), []).append(run["cpu_seconds"])
    few_classes = min(classes for _, _, classes in times)
    usual_rows = statistics.mode(rows for _, rows, classes in times if classes != few_classes)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
    for number, method in enumerate(dict.fromkeys(method for method, *_ in times)):
        found = {(n, k): statistics.median(each) for (name, n, k), each in times.items() if name == method}
        by_rows = sorted((n, seconds) for (n, k), seconds in found.items() if k == few_classes)
        by_classes = sorted((k, seconds) for (n, k), seconds in found.items() if n == usual_rows)
        style = {
            "marker": "o",
            "markersize": 3,
            "color": f"C{number}",
            "linestyle": "-" if "glayers" in method else ":",
        }
        for panel, points in zip(axes, (by_rows, by_classes), strict=True):
            if len(points) > 1:
                panel.plot(*zip(*points, strict=True), label=method, **style)
    axes[0].set(xscale="log", yscale="log", xlabel=f"rows, {few_classes} classes", ylabel="processor seconds of a fit")
    axes[1].set(xscale="log", yscale="log", xlabel=f"classes, {usual_rows:,} rows")
    handles = {text: line for panel in axes for line, text in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=7)
    figure.savefig(path, dpi=150)


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
    "glayers g-layers": ("glayers", ours("g-layers")),
    "glayers auto": ("glayers", ours("auto")),
}


if __name__ == "__main__":
    main()
