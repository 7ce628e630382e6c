"""The lines of docs/start/language-models.md."""

import json

import numpy as np

import glayers
from glayers import metrics

rng = np.random.default_rng(0)
with open("questions.jsonl", "w") as log:
    for _ in range(2000):
        truth = 1.5 * rng.normal(size=4)
        answer = "ABCD"[(truth + rng.gumbel(size=4)).argmax()]
        scores = 2.5 * truth - 40
        log.write(json.dumps({"choices": list("ABCD"), "logprobs": scores.tolist(), "answer": answer}) + "\n")

rows = glayers.read_predictions("questions.jsonl")
calibration, test = rows.take(np.arange(1000)), rows.take(np.arange(1000, 2000))
calibrator = glayers.TemperatureScaling().fit_predictions(calibration)
print(metrics.calibration_test(test))
print(metrics.calibration_test(calibrator.apply(test)))
confidence = calibrator.predict_proba(test.logits).max(axis=1)  # of the chosen answer

said = rng.uniform(0.5, 1.0, 2000)
correct = rng.random(2000) < said - 0.2  # always 20 points too sure
answers = glayers.Confidences(said, correct)
old, new = answers.take(np.arange(1000)), answers.take(np.arange(1000, 2000))

platt = glayers.PlattScaling(inputs="confidence").fit(old.confidence, old.correct)
calibrated = platt.apply(new)
print("KS error", metrics.ks(new), "->", metrics.ks(calibrated))
print(platt.predict_proba([0.9])[:, 1])  # what 90 % really means
