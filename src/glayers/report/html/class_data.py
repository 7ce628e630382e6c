"""What was measured -> the class part of the page: a table of the classes that matter, and their matrix as JSON."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Ints
from glayers.report import shortened
from glayers.report.html.measuring import LEVEL, Measured, Measurements
from glayers.report.html.numbers import metric_text, plain

_MATRIX = 30  # classes a side: more cells than a finger can tell apart help nobody


@dataclass(frozen=True)
class ClassLine:
    """A class: its rows, how often it is the label, and for each method shown what it is given and its KS."""

    name: str
    rows: str
    calibration_rows: str
    frequency: str
    cells: list[tuple[str, str, bool]]


def class_lines(
    found: Measurements, shown: list[Measured], names: list[str], calibration_counts: Ints | None
) -> list[ClassLine]:
    """Return one line a class, with mean probability, KS, and whether that is beyond chance among all classes."""
    gaps, n_classes = found.before.gaps, len(names)

    def cell(method: Measured, c: int) -> tuple[str, str, bool]:
        ks = method.curves[f"class-{c}"]["ks"]
        beyond = ks["p_value"] * n_classes <= 1 - LEVEL  # Bonferroni: also for the classes that are not shown
        return metric_text("confidence", method.gaps.confidence[c]), metric_text("ks", ks["ks"]), beyond

    return [
        ClassLine(
            name=names[c],
            rows=f"{gaps.counts[c]:,.0f}",
            calibration_rows="" if calibration_counts is None else f"{calibration_counts[c]:,}",
            frequency=metric_text("frequency", gaps.frequency[c]),
            cells=[cell(method, c) for method in shown],
        )
        for c in found.classes.tolist()
    ]


def matrix_data(found: Measurements, names: list[str]) -> dict[str, Any]:
    """Return for each method how much more than its share each class is given where another is predicted."""
    predicted = found.before.matrix.predicted[found.classes]
    most = np.argsort(-predicted, kind="stable")[:_MATRIX]
    chosen = np.sort(found.classes[most])
    square = np.ix_(chosen, chosen)
    return {
        "names": [shortened(names[c], most=24) for c in chosen.tolist()],
        "of": len(names),
        "methods": {
            method.name: plain(
                {
                    "predicted": method.matrix.predicted[chosen],
                    "gap": method.matrix.gap[square],
                    "deviation": method.matrix.deviation[square],
                },
                3,
            )
            for method in found.methods
        },
    }
