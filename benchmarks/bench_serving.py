"""How long a fresh process takes to load a calibrator, and how long one row takes, in NumPy and in onnxruntime."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from glayers import CALIBRATORS, datasets

METHODS = ("temperature", "vector", "g-layers", "auto")

CODE = """
import sys, time
import numpy
start = time.perf_counter()
import glayers
calibrator = glayers.load(sys.argv[1] + ".safetensors")
loaded = time.perf_counter() - start
row = numpy.load(sys.argv[2])


def best(function, repeats=20, calls=50):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


seconds = [loaded, best(lambda: calibrator.predict_proba(row))]
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + ".onnx")
narrow = {"uncalibrated_logits": row.astype(numpy.float32)}
seconds.append(best(lambda: session.run(["probabilities"], narrow)))
print(*seconds)
"""


def main() -> None:
    calibration, test = datasets.load_fashion_mnist()
    print("method        load, beyond NumPy  one row  one row, onnxruntime")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "row.npy", test.logits[:1].astype(np.float64))
        for method in METHODS:
            fitted = CALIBRATORS[method]().fit_predictions(calibration)
            fitted.save(folder / f"{method}.safetensors")
            fitted.to_onnx(folder / f"{method}.onnx")
            found = []
            for _ in range(3):
                command = [sys.executable, "-c", CODE, str(folder / method), str(folder / "row.npy")]
                done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                found.append([float(each) for each in done.stdout.split()])
            load, row, session = (min(each) for each in zip(*found, strict=True))
            print(f"{method:12}  {load:16.3f} s  {row * 1e3:.3f} ms  {session * 1e3:12.3f} ms")


if __name__ == "__main__":
    main()
