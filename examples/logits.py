"""The lines of docs/start/logits.md."""

import numpy as np

import glayers
from glayers import metrics

rng = np.random.default_rng(0)
truth = 2 * rng.normal(size=(4000, 5))
labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)  # replace: labels = np.load("labels.npy")
logits = 2 * truth  # replace: logits = np.load("logits.npy")

calibration = glayers.Predictions(logits[:2000], labels[:2000])
test = glayers.Predictions(logits[2000:], labels[2000:])

print(metrics.calibration_test(test))
print(metrics.scorecard(test))

calibrator = glayers.AutoCalibrator().fit_predictions(calibration)
print(calibrator.selection_)  # what was tried, what was kept and why
probabilities = calibrator.predict_proba(test.logits)

print(metrics.calibration_test(probabilities, test.labels))
print("NLL", metrics.nll(test), "->", metrics.nll(probabilities, test.labels))

calibrator.save("model.safetensors")
again = glayers.load("model.safetensors")  # needs neither torch nor pickle
assert np.array_equal(again.predict_proba(test.logits), probabilities)
