"""Multiple-choice questions of lm-evaluation-harness -> the metrics of glayers, beside its own."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from lm_eval.api.registry import register_aggregation, register_metric
from lm_eval.api.task import ConfigurableTask

from glayers.errors import BadPredictions, GlayersError, shown
from glayers.metrics import METRICS, Metric
from glayers.metrics.streaming import StreamingScorecard
from glayers.predictions import Predictions
from glayers.predictions.language_models import padded

_LOG_LIKELIHOODS = "likelihood"  # what the harness calls the right choice with the log-likelihoods of all
_Answers = Iterable[tuple[int, tuple[float, ...]]]


class ScorecardTask(ConfigurableTask):  # type: ignore[misc]  # its types would take minutes to check
    """A multiple-choice task whose `metric_list` may name any metric of glayers, such as `ks` and `ece`.

    In the YAML file of a task: `class: !function glayers.bridges.lm_eval.ScorecardTask`.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """Add the right choice and the log-likelihoods for each metric of glayers to what the harness returns."""
        self._metric_fn_list.setdefault(_LOG_LIKELIHOODS, None)
        found = super().process_results(doc, results)
        if _LOG_LIKELIHOODS not in found:
            raise GlayersError("ScorecardTask needs output_type: multiple_choice, and no process_results of its own")
        right, scores = found.pop(_LOG_LIKELIHOODS)
        if type(right) is not int or right < 0:
            raise BadPredictions(f"each question must have one right choice; got {shown(right)} for {shown(doc)}")
        return found | {name: (right, scores) for name in self._metric_fn_list if name in METRICS}


def _register(metric: Metric) -> None:
    """Give the harness a metric, and how it follows from the answers to all questions."""
    register_aggregation(metric.name)(_aggregation(metric.name))
    described: dict[str, Any] = {"metric": metric.name, "aggregation": metric.name, "output_type": "multiple_choice"}
    if metric.better is not None:
        described["higher_is_better"] = metric.better == "higher"
    register_metric(**described)(lambda answers: answers)


def _aggregation(name: str) -> Callable[[_Answers], float]:
    def aggregated(answers: _Answers) -> float:
        labels, scores = zip(*answers, strict=True)
        logits = padded([np.asarray(row) for row in scores], -np.inf)  # questions may have fewer choices than others
        return StreamingScorecard().update(Predictions(logits, labels)).result([name])[name]

    return aggregated


for _metric in METRICS.values():
    _register(_metric)
