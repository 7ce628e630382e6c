"""Committed logits of a network -> the report on the front page: `make docs`."""

import sys
from pathlib import Path

from experiments.paper.networks.captured import load_networks

import glayers

NAMES = ["airplane", "automobile", "bird", "cat", "deer"]
NAMES += ["dog", "frog", "horse", "ship", "truck"]


def write(path: Path) -> None:
    """Write the report."""
    network = load_networks()["cifar10_residual"]
    rows = network.checkpoints[network.last]
    calibration, test = (
        glayers.Predictions(part.logits, part.labels, class_names=NAMES)
        for part in rows
    )
    found = glayers.compare(calibration, test, ["temperature", "vector", "auto"])
    title = "A residual network on CIFAR-10"
    found.to_html(
        path, calibration=calibration, title=title, n_resamples=200, force=True
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
