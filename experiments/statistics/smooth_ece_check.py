"""Simulated models -> the smooth ECE of glayers, of relplot, and by direct integration, which says who is right.

Run: python -m experiments.statistics.smooth_ece_check (prints a table; needs the development dependencies)

The sharper the model, the more its scores crowd at 1. relplot evaluates the smoothed residuals at points that include
both ends, and weights them by the smoothed density there.
"""

import argparse

import numpy as np
import relplot
from scipy.optimize import brentq
from scipy.stats import norm

from glayers import Confidences
from glayers.metrics import smooth_ece
from glayers.text_tables import markdown_table

ROWS = 1_000
_POINTS = 8_000  # of the integral; ten times closer together than the narrowest kernel
# How many logits a score is from one half, on average; about 6 is a network with 99 % confidence.
SHARPNESS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)


def main() -> None:
    rows = [["sharpness", "mean score, %", "integrated, %", "glayers, %", "relplot, %", "glayers off", "relplot off"]]
    for sharpness in SHARPNESS:
        scores, hits = model(sharpness)
        truth = direct(scores, hits)
        ours, theirs = smooth_ece(Confidences(scores, hits)), relplot.smECE(scores, hits.astype(float))
        numbers = [f"{100 * value:.4f}" for value in (scores.mean(), truth, ours, theirs)]
        rows.append([f"{sharpness:g}", *numbers, f"{ours / truth - 1:+.1e}", f"{100 * (theirs / truth - 1):+.1f} %"])
    print(markdown_table(rows))


def model(sharpness: float) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and hits of a model that is overconfident: the true logit is 0.7 of its own."""
    rng = np.random.default_rng(0)
    logits = rng.gamma(4.0, sharpness / 4.0, ROWS)
    scores, truth = (1 / (1 + np.exp(-factor * logits)) for factor in (1.0, 0.7))
    return scores, rng.random(ROWS) < truth


def direct(scores: np.ndarray, hits: np.ndarray) -> float:
    """Integrate the definition: residuals smoothed by a Gaussian reflected at 0 and 1, at the bandwidth it equals."""
    points = ((np.arange(_POINTS) + 0.5) / _POINTS).reshape(20, -1)

    def area(bandwidth: float) -> float:
        copies = np.stack([scores, -scores, 2 - scores])[:, :, None]
        smoothed = [(hits - scores) @ norm.pdf(part, copies, bandwidth).sum(axis=0) for part in points]
        return float(np.abs(smoothed).mean() / len(scores))

    return float(brentq(lambda bandwidth: area(bandwidth) - bandwidth, 1e-4, 1.0, xtol=1e-10))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no options but --help
    main()
