"""Whatever a setting is set to, either the call works or a `GlayersError` says why not; nothing else comes out."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

import glayers
from glayers import GlayersError, Predictions, metrics
from glayers.calibrators import CALIBRATORS, auto
from glayers.report.plots import figure

BAD: dict[str, Any] = {
    "None": None,
    "true": True,
    "text": "x",
    "no text": "",
    "bytes": b"x",
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "-1": -1,
    "0": 0,
    "-0.5": -0.5,
    "0.5": 0.5,
    "10**30": 10**30,
    "1e308": 1e308,
    "complex": 1j,
    "empty list": [],
    "list": [1, 2],
    "text in a list": ["a"],
    "None in a list": [None],
    "tuple": (),
    "dict": {},
    "dict of text": {"a": "b"},
    "object": object(),
    "type": int,
    "array": np.array([1.0, 2.0]),
    "array of nan": np.full((2, 2), np.nan),
    "array of text": np.array("a"),
    "array of objects": np.array([None, "a"], dtype=object),
}
CLASSES = {type(make()).__name__: type(make()) for make in CALIBRATORS.values()}
ROWS = 30
LOGITS = np.random.default_rng(0).normal(size=(ROWS, 3)) * 2
LABELS = np.arange(ROWS) % 3
TEST = Predictions(LOGITS, LABELS)
METHODS = {"one": TEST, "two": TEST.with_logits(LOGITS / 2)}
# Settings that keep an accepted value from taking long.
FEW: dict[str, Any] = {
    "max_epochs": 2,
    "n_folds": 2,
    "time_budget": 1.0,
    "n_resamples": 9,
    "learning_rate": 0.01,
    "weight_decay": 0.01,
    "progress": False,
    "random_state": 0,
}
NEVER_SETTINGS = {"probabilities", "labels", "methods", "calibrator"}


def named(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {function.__name__: function for function in functions}


def of_metrics() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function of `glayers.metrics`, with the data that it needs."""
    needs: dict[str, Callable[..., Any]] = {
        "paired_differences": partial(metrics.paired_differences, METHODS),
        "adjust": partial(metrics.adjust, [0.01, 0.2]),
    }
    for name in ("label_scorecards", "label_tests"):
        several = np.eye(TEST.n_classes)[TEST.labels]
        needs[name] = partial(getattr(metrics, name), TEST.probabilities(), several)
    for name in metrics.__all__:
        function = getattr(metrics, name)
        if not inspect.isfunction(function):
            continue
        first = next(iter(inspect.signature(function).parameters))
        yield name, needs.get(name) or (partial(function, TEST) if first == "probabilities" else function)


CALLS: dict[str, Callable[..., Any]] = {
    **dict(of_metrics()),
    "Predictions": lambda weights=None, groups=None, class_names=None: Predictions(
        LOGITS, LABELS, weights, groups, class_names
    ),
    "from_probabilities": partial(Predictions.from_probabilities, TEST.probabilities(), LABELS),
    "Confidences": partial(glayers.Confidences, np.linspace(0, 1, ROWS), LABELS == 0),
    "compare": partial(glayers.compare, TEST, TEST, ["temperature"]),
    "compare methods": lambda methods: glayers.compare(TEST, TEST, methods),
    "calibration_gap": partial(glayers.calibration_gap, TEST, calibrator=glayers.TemperatureScaling()),
    "calibration_gap of any calibrator": lambda g: g is None or glayers.calibration_gap(TEST, calibrator=g),
    "rows_needed": partial(glayers.rows_needed, TEST, calibrator=glayers.TemperatureScaling()),
    "figure": partial(figure, "errors", METHODS),
}


def settings_of(call: Callable[..., Any]) -> list[str]:
    """Return the names of the settings that a call still takes."""
    return [
        name
        for name, parameter in inspect.signature(call).parameters.items()
        if name not in NEVER_SETTINGS and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def foreign_errors(call: Callable[..., Any], settings: list[str]) -> list[str]:
    """Return what was raised other than our own errors."""
    found = []
    for setting in settings:
        quick = {name: value for name, value in FEW.items() if name in settings}
        for kind, bad in BAD.items():
            try:
                with warnings.catch_warnings(action="ignore"):
                    call(**quick | {setting: bad})
            except GlayersError:
                continue
            except Exception as error:
                found.append(f"{setting} = {kind}: {type(error).__name__}: {error}"[:160])
    pyplot.close("all")
    return found


def fitted(kind: type[glayers.Calibrator], **settings: Any) -> Any:
    return kind(**settings).fit(LOGITS, LABELS)


@pytest.mark.parametrize("name", CLASSES)
def test_a_calibrator_refuses_bad_settings_by_our_own_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "find_spec", lambda _: None)  # auto sets no setting of g-layers
    settings = list(CLASSES[name]().get_params(deep=False))
    assert foreign_errors(partial(fitted, CLASSES[name]), settings) == []


@pytest.mark.parametrize("name", CALLS)
def test_a_function_refuses_bad_settings_by_our_own_errors(name: str) -> None:
    mpl.use("agg")
    assert foreign_errors(CALLS[name], settings_of(CALLS[name])) == []


def test_files_and_their_settings_are_refused_by_our_own_errors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    np.savez(tmp_path / "b.npz", confidence=np.linspace(0, 1, ROWS), correct=LABELS == 0)
    calibrator = glayers.HistogramBinning().fit(LOGITS, LABELS)

    def save(path: Any) -> None:
        if not isinstance(path, str):  # a good name
            calibrator.save(path)

    calls: dict[Callable[..., Any], list[str]] = {
        partial(glayers.read_predictions, tmp_path / "a.npz"): ["part", "labels", "inputs"],
        partial(glayers.read_confidences, tmp_path / "b.npz"): ["part"],
        glayers.read_predictions: ["path"],
        glayers.load: ["path"],
        save: ["path"],
        glayers.TemperatureScaling().fit_predictions: ["predictions"],
    }
    for call, settings in calls.items():
        assert foreign_errors(call, settings) == []


@pytest.mark.parametrize("event", [metrics.rank, metrics.within_top, metrics.label, metrics.one_of])
def test_an_event_of_a_bad_class_or_rank_is_refused_where_it_is_used(event: Callable[[Any], metrics.Event]) -> None:
    assert foreign_errors(lambda which: metrics.ks(TEST, event=event(which)), ["which"]) == []
