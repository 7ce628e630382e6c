"""How long a calibrator takes to load, and to predict one row or many: as fitted, loaded without torch, and in ONNX.

    python -m benchmarks.bench_serving > benchmarks/results/serving.md

Loading is measured in a fresh process, beyond importing NumPy. One row is the best of many calls, in elapsed time. Many
rows are 20,000, in processor time, divided by that of a plain softmax in NumPy.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.bench import seconds_of, softmax
from benchmarks.simulation import gaussian_mixture

from glayers.comparison import unfitted

METHODS = ("temperature", "vector", "auto")
FITTED_ON = ((5_000, 10), (3_000, 1_000))  # rows and classes
ROWS = 20_000

FRESH = """
import sys, time
import numpy
start = time.perf_counter()
import glayers
calibrator = glayers.load(sys.argv[1] + ".safetensors")
loaded = time.perf_counter() - start
row = numpy.load(sys.argv[2])
assert calibrator.predict_proba(row).shape == row.shape and "torch" not in sys.modules
from benchmarks.bench_serving import best
one = best(lambda: calibrator.predict_proba(row))
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + ".onnx")
narrow = {"uncalibrated_logits": row.astype(numpy.float32)}
print(loaded, one, best(lambda: session.run(["probabilities"], narrow)))
"""


def main() -> None:
    warnings.simplefilter("ignore")
    print(
        "# Time to load a calibrator and to predict\n\nMade by `python -m benchmarks.bench_serving`, whose first lines"
    )
    print(f"say how; one thread. The load of the machine was {os.getloadavg()[0]:.1f} at the start.\n")
    print(
        "| classes | method | load, s | one row, ms: as fitted | loaded, without torch | ONNX | many rows / softmax |"
    )
    print("|---|---|---|---|---|---|---|")
    for n_rows, classes in FITTED_ON:
        given, new = gaussian_mixture(n_rows, classes), gaussian_mixture(ROWS, classes, seed=1).logits
        for method in METHODS:
            fitted = unfitted(method).fit(given.logits, given.labels)
            row = new[:1].astype(np.float64)
            one = best(partial(fitted.predict_proba, row))
            many, plain = (min(seconds_of(call, new) for _ in range(5)) for call in (fitted.predict_proba, softmax))
            load, fresh, session = in_fresh_processes(fitted, row)
            times = f"{1e3 * one:.3f} | {1e3 * fresh:.3f} | {1e3 * session:.3f}"
            print(f"| {classes:,} | {method} | {load:.3f} | {times} | {many / plain:.1f} |", flush=True)


def in_fresh_processes(fitted: Any, row: np.ndarray, repeats: int = 3) -> list[float]:
    """Return the smallest seconds of several processes: to load, to predict one row, and the same in onnxruntime."""
    with tempfile.TemporaryDirectory() as folder:
        file, data = Path(folder) / "calibrator", Path(folder) / "row.npy"
        np.save(data, row)
        fitted.save(f"{file}.safetensors")
        fitted.to_onnx(f"{file}.onnx")
        words = [sys.executable, "-c", FRESH, str(file), str(data)]
        runs = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(repeats)]  # noqa: S603 (our own words)
    return [min(each) for each in zip(*([float(word) for word in run.split()] for run in runs), strict=True)]


def best(call: Callable[[], object], repeats: int = 500, calls: int = 2) -> float:
    """Return the seconds of one call, in the quickest of many short turns, which other work seldom interrupts."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


if __name__ == "__main__":
    main()
