"""Sample data -> the report that the front page of the site shows: `make docs`."""

import sys
from pathlib import Path

import glayers

calibration, test = glayers.datasets.load_fashion_mnist()
found = glayers.compare(calibration, test, ["temperature", "vector", "auto"])
title = "Fashion-MNIST, a small network"
found.to_html(Path(sys.argv[1]), calibration=calibration, title=title, n_resamples=200, force=True)
