"""A comparison of methods -> a run of MLflow: numbers, table, figures, report and the recommended calibrator."""

import re
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glayers.comparison import UNCALIBRATED, Comparison
from glayers.errors import GlayersError
from glayers.report.plots import figure


def log_comparison(
    comparison: Comparison, *, figures: Collection[str] = ("reliability", "ks"), folder: str = "glayers", **report: Any
) -> None:
    """Log a comparison to the active run of MLflow, or to a new one.

    Parameters
    ----------
    comparison
        What `compare` returned.
    figures
        Names in `glayers.report.figures.FIGURES`, drawn of the uncalibrated model and the recommended method.
    folder
        The folder of the artifacts: `comparison.json`, the figures, `report.html`, and `calibrator.safetensors` where
        the recommended method can be saved.
    **report
        Of `Comparison.to_html`, such as `calibration` and `n_resamples`.

    Notes
    -----
    The metrics of the run are called `method/metric`, such as `temperature/nll`. Characters that MLflow refuses become
    `_`. Infinite values are left out, and empty in the table.
    """
    import mlflow  # only here: importing it takes seconds

    numbers = comparison.to_dict()
    for method, card in numbers.items():
        key = re.sub(r"[^\w\-. /]", "_", method)  # MLflow refuses other characters
        mlflow.log_metrics({f"{key}/{name}": value for name, value in card.items() if value is not None})
    names = dict.fromkeys(name for card in numbers.values() for name in card)
    columns = {name: [card.get(name) for card in numbers.values()] for name in names}
    mlflow.log_table({"method": list(numbers), **columns}, f"{folder}/comparison.json")
    shown = dict.fromkeys([UNCALIBRATED, comparison.recommended])
    methods = {method: comparison.predictions(method) for method in shown}
    for kind in figures:
        mlflow.log_figure(figure(kind, methods), f"{folder}/{kind}.png")
    with TemporaryDirectory() as place:
        comparison.to_html(Path(place) / "report.html", **report)
        if comparison.recommended in comparison.calibrators:
            try:
                comparison.calibrators[comparison.recommended].save(Path(place) / "calibrator.safetensors")
            except GlayersError as problem:  # a file holds numbers, and never code of the user
                mlflow.set_tag("glayers.not_saved", str(problem))
        mlflow.log_artifacts(place, folder)
