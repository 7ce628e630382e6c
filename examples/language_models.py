"""The lines of docs/start/language-models.md."""

import json

import numpy as np

import glayers
from glayers import metrics

rng = np.random.default_rng(0)
with open("questions.jsonl", "w") as log:
    for _ in range(20_000):
        truth = 1.5 * rng.normal(size=4)
        answer = "ABCD"[(truth + rng.gumbel(size=4)).argmax()]
        scores = 2.5 * truth - 40
        scores = scores.tolist()
        question = {"choices": list("ABCD"), "logprobs": scores, "answer": answer}
        log.write(json.dumps(question) + "\n")

rows = glayers.read_predictions("questions.jsonl")
calibration, test = (rows.take(np.arange(i, i + 10_000)) for i in (0, 10_000))
calibrator = glayers.TemperatureScaling().fit_predictions(calibration)
calibrated = calibrator.apply(test)
print(metrics.calibration_test(test))
print(metrics.calibration_test(calibrated))
confidence = calibrator.predict_proba(test.logits).max(axis=1)  # of the chosen answer

from glayers.report.plots import figure

figure("reliability", {"before": test, "after": calibrated}).savefig("reliability.svg")

said = rng.uniform(0.5, 1.0, 2000)
correct = rng.random(2000) < said - 0.2  # overconfident by 20 points
answers = glayers.Confidences(said, correct)
old, new = answers.take(np.arange(1000)), answers.take(np.arange(1000, 2000))

platt = glayers.PlattScaling(inputs="confidence").fit(old.confidence, old.correct)
print(f"KS error {metrics.ks(new):.3f} -> {metrics.ks(platt.apply(new)):.3f}")
print(f"Stated 0.9, calibrated {platt.predict_proba([0.9])[0, 1]:.3f}")
