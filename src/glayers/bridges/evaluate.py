"""Predictions and references of Hugging Face's `evaluate` -> the scorecard, as a metric module."""

from collections.abc import Collection
from typing import Any, Literal

import datasets
import evaluate

from glayers.metrics import METRICS
from glayers.metrics.streaming import StreamingScorecard


class ScorecardEvaluation(evaluate.Metric):  # type: ignore[misc]  # it has no types
    """The metrics of glayers as a metric of `evaluate`: `predictions` are a list of scores per row.

    `evaluate.load` also takes the path of this file, and `evaluate.combine` takes the metric.

    Examples
    --------
    >>> metric = ScorecardEvaluation(keep_in_memory=True)
    >>> metric.add_batch(predictions=[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], references=[0, 2])
    >>> metric.compute(metrics=["accuracy", "ks"])["accuracy"]
    0.5
    """

    def _info(self) -> evaluate.MetricInfo:
        scores = datasets.Sequence(datasets.Value("float64"))
        return evaluate.MetricInfo(
            description="Calibration errors and proper scores of a classifier.",
            citation="",
            inputs_description="predictions: scores of all classes, per row. references: class numbers.",
            features=datasets.Features({"predictions": scores, "references": datasets.Value("int64")}),
        )

    def _compute(
        self,
        predictions: Any,
        references: Any,
        inputs: Literal["probabilities", "logits"] = "probabilities",
        metrics: Collection[str] = METRICS,
    ) -> dict[str, float]:
        """Return metrics by name. `inputs` says what the scores are, and `metrics` names some; all by default."""
        return dict(StreamingScorecard(inputs).update(predictions, references).result(metrics))
