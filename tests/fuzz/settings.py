"""Every setting of the public functions with values that are no settings: a result, or an error of the library."""

import contextlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import glayers
from glayers import GlayersError, metrics
from tests.fuzz.mutations import Random, pick

RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(200, 3))
P = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
LABELS = (RNG.random((200, 1)) > P.cumsum(axis=1)[:, :-1]).sum(axis=1)
ROWS = glayers.Predictions(LOGITS, LABELS)
COSTS = 1 - np.eye(3)
ODD = [
    *(np.int8(3), np.uint8(200), np.array(3), np.array([1, 2]), np.array([]), np.array([1, "a", None], dtype=object)),
    *(float("nan"), float("inf"), -1, 0, 0.5, np.float16(0.5), 1e-300, 10**12, 10**400, 1j, True, None, np.ma.masked),
    *("", "abc", "a\0b", "\udc80", b"a", [], [1, 2], [[1, 2], [3]], {"a": 1}, {1, 2}, object(), int),
    *(np.full(200, np.nan), np.ones(200), np.full(200, 1e300), np.full(200, 1e-300), np.eye(200)[0], np.arange(200)),
    *(P.astype(np.float16), P.tolist(), np.eye(3)[LABELS], np.where(P.min() == P, -np.inf, LOGITS), LOGITS * 1e300),
    *(np.empty((0, 3)), P[None], P.astype(str), metrics.rank(99), metrics.label("a"), metrics.one_of([0, 1, 2])),
]
Call = tuple[Callable[..., Any], dict[str, Any]]
SMALL: dict[str, Any] = {"n_resamples": 30, "random_state": 0}
TESTS: dict[str, Any] = {"n_resamples": 99, "random_state": 0, "level": 0.9}
METHODS = {"one": ROWS, "two": ROWS.with_logits(LOGITS / 2)}
FORECAST: dict[str, Any] = {
    "logits": LOGITS,
    "labels": LABELS,
    "sample_weight": None,
    "groups": None,
    "calibrator": glayers.TemperatureScaling(),
    "random_state": 0,
    "progress": False,
}


def streamed(scores: Any, labels: Any, sample_weight: Any, **settings: Any) -> Any:
    return metrics.StreamingScorecard(**settings).update(scores, labels, sample_weight=sample_weight).result()


def of_metrics() -> dict[str, Call]:
    """Return every function that measures probabilities, with its settings."""
    found: dict[str, Call] = {}
    for name in metrics.__all__:
        function = getattr(metrics, name)
        if not inspect.isfunction(function):
            continue
        defaults = {setting: about.default for setting, about in inspect.signature(function).parameters.items()}
        if "probabilities" in defaults:
            given = {setting: value for setting, value in TESTS.items() if setting in defaults}
            found[name] = (function, defaults | given | {"probabilities": P, "labels": LABELS})
    for name in ("label_scorecards", "label_tests"):
        found[name][1]["labels"] = np.eye(3)[LABELS]
    return found


@cache
def calls(folder: Path) -> dict[str, Call]:
    """Return functions, each with settings that are good."""
    fitted = glayers.VectorScaling(strength=1.0).fit(LOGITS, LABELS)
    tempered = glayers.TemperatureScaling().fit(LOGITS, LABELS)
    compared = glayers.compare(ROWS.take(slice(100)), ROWS.take(slice(100, None)), ["temperature"])
    file = folder / "rows.npz"
    np.savez(file, logits=LOGITS, labels=LABELS)
    stated = folder / "stated.npz"
    np.savez(stated, confidence=P.max(axis=1), correct=LABELS == 0)
    saved = folder / "tempered"
    tempered.save(saved)
    rows = {"probabilities": P, "labels": LABELS, "sample_weight": None}
    confidences = {"confidence": P.max(axis=1), "correct": LABELS == 0, "weights": None, "groups": None, "counts": None}
    return of_metrics() | {
        "differences": (metrics.paired_differences, SMALL | {"methods": METHODS, "metrics": ["nll"], "level": 0.9}),
        "rank": (metrics.rank, {"r": 2}),
        "label": (metrics.label, {"c": 2}),
        "one_of": (metrics.one_of, {"classes": [0, 2]}),
        "within_top": (metrics.within_top, {"r": 2}),
        "positive": (metrics.positive, {"c": 1}),
        "adjust": (metrics.adjust, {"p_values": [0.01, 0.2]}),
        "confidences": (glayers.Confidences, confidences),
        "interval": (fitted.predict_interval, {"logits": LOGITS, "level": 0.9}),
        "conform": (fitted.conform, {"predictions": ROWS}),
        "compare": (
            glayers.compare,
            {"calibration": ROWS, "test": ROWS, "methods": ["temperature"], "random_state": 0},
        ),
        "streaming": (streamed, {"scores": P, "labels": LABELS, "sample_weight": None, "event": metrics.top}),
        "take": (ROWS.take, {"rows": [0, 1]}),
        "with_logits": (ROWS.with_logits, {"logits": LOGITS}),
        "decide": (glayers.decide, {"probabilities": P, "costs": COSTS}),
        "costs": (glayers.realised_costs, SMALL | {"policies": {"a": ROWS}, "costs": COSTS, "level": 0.9}),
        "estimate": (glayers.estimate, {"calibrator": fitted, "logits": LOGITS, "level": 0.9, "n_draws": 20}),
        "adapt": (fitted.adapt, {"logits": LOGITS, "groups": None, "level": 0.9}),
        "adapt_to": (fitted.adapt, {"frequencies": [0.2, 0.3, 0.5]}),
        "plausible": (fitted.plausible, {"rows": LOGITS, "n_draws": 3, "random_state": 0}),
        "predict_set": (tempered.predict_set, {"logits": LOGITS, "level": 0.9, "kind": "adaptive"}),
        "set_report": (glayers.set_report, {"calibrator": tempered, "predictions": ROWS, "level": 0.9}),
        "model_card": (glayers.model_card, {"calibrator": fitted, "test": ROWS, "accuracy": 0.6, "level": 0.9}),
        "net_benefit": (
            glayers.net_benefit,
            SMALL | {"predictions": ROWS, "thresholds": [0.2], "event": metrics.label(1)},
        ),
        "gap": (glayers.calibration_gap, FORECAST),
        "rows_needed": (glayers.rows_needed, FORECAST),
        "watch": (
            glayers.watch,
            {"batch": ROWS, "state": folder / "s.json", "labels": None, "alpha": 0.01, "name": ""},
        ),
        "threshold": (glayers.threshold, rows | {"accuracy": 0.6, "level": 0.9}),
        "shift_test": (glayers.shift_test, {"calibrator": fitted, "logits": LOGITS, "groups": None, "level": 0.9}),
        "read": (glayers.read_predictions, {"path": file, "part": None, "labels": None}),
        "read_confidences": (glayers.read_confidences, {"path": stated, "part": None, "stated": None}),
        "load": (glayers.load, {"path": saved}),
        "predictions": (compared.predictions, {"method": "temperature"}),
        "rows": (compared.rows, {"method": "temperature"}),
        "to_html": (compared.to_html, {"path": folder / "a.html", "force": True, "n_resamples": 20}),
    }


def check_setting(random: Random, folder: Path) -> str:
    """Call one function with one odd setting."""
    functions = calls(folder)
    name = str(pick(list(functions), random))
    setting = str(pick(list(functions[name][1]), random))
    with contextlib.chdir(folder):
        return outcome(functions[name], name, setting, ODD[random.integers(len(ODD))])


def outcome(call: Call, name: str, setting: str, odd: Any) -> str:
    """Say whether a call returned something that prints, or was refused in few words."""
    function, settings = call
    try:
        str(function(**(settings | {setting: odd})))
    except GlayersError as error:
        if len(str(error)) > 1_500:
            raise AssertionError(f"a long message of {name}({setting}=...)") from error
        return "refused"
    except Exception as error:
        raise AssertionError(f"{name}({setting}={odd!r})") from error
    return "accepted"
