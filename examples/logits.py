"""The lines of docs/start/logits.md."""

import numpy as np

import glayers
from glayers import metrics

rng = np.random.default_rng(0)
truth = 2 * rng.normal(size=(20_000, 5))
labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
logits = 2 * truth
# Replace with your own: np.load("logits.npy") and np.load("labels.npy")

calibration = glayers.Predictions(logits[:10_000], labels[:10_000])
test = glayers.Predictions(logits[10_000:], labels[10_000:])

print(metrics.calibration_test(test))
print(metrics.scorecard(test))

calibrator = glayers.AutoCalibrator().fit_predictions(calibration)
print(calibrator.selection_)  # what was tried, what was kept and why
probabilities = calibrator.predict_proba(test.logits)

print(metrics.calibration_test(probabilities, test.labels))
print(f"NLL {metrics.nll(test):.4f} -> {metrics.nll(probabilities, test.labels):.4f}")

from glayers.report.plots import figure

methods = {"before": test, "after": calibrator.apply(test)}
figure("reliability", methods).savefig("reliability.svg")

calibrator.save("calibrator.safetensors")
again = glayers.load("calibrator.safetensors")  # needs neither torch nor pickle
assert np.array_equal(again.predict_proba(test.logits), probabilities)
