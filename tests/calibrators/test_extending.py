"""Calibrators from outside: objects, functions, registered classes and installed packages do what ours do."""

import json
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from glayers import (
    CALIBRATORS,
    BadFile,
    CalibratedClassifier,
    Calibrator,
    Fitted,
    GlayersError,
    GlayersWarning,
    Method,
    MultiLabelCalibrator,
    OutsideCalibrator,
    Predictions,
    TemperatureScaling,
    calibration_gap,
    compare,
    load,
    register,
)
from glayers.activations import softmax
from glayers.calibrators import PlattScaling
from glayers.maps import Chain, Dense, Diagonal, Reference, Scale, Step
from glayers.maps.steps import Numbers as Numbers_
from glayers.testing import LAWS, check_calibrator, tilted_rows
from tests.strategies import Numbers


class Halved(Calibrator):
    """Divide all logits."""

    by: float = 2.0

    methods = (Method("halved", "Divides all logits by two", "ranking"),)
    _kept = ("rows_",)

    def _fit(self, given: Predictions) -> Fitted:
        chain = Chain((Reference(), Scale(np.array(1 / self.by))))
        return Fitted(chain, "halving", attributes={"rows_": len(given)})


@pytest.fixture
def halved() -> type[Calibrator]:
    return register(Halved)


def squared(p: Numbers) -> Numbers:
    return p**2 / (p**2).sum(axis=1, keepdims=True)


def rows(seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(400, 3)) * 2
    return Predictions(3 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


# Objects and functions


def test_an_object_and_a_function_go_where_calibrators_go(tmp_path: Path) -> None:
    calibration, test = rows(), rows(1)
    logistic = LogisticRegression(C=0.1)
    found = compare(calibration, test, {"own": logistic, "squared": squared, "platt": CALIBRATORS["platt"]})
    alone = LogisticRegression(C=0.1).fit(calibration.probabilities(), calibration.labels)
    assert np.allclose(found.rows("own").probabilities, alone.predict_proba(test.probabilities()))  # type: ignore[union-attr]
    assert np.allclose(found.rows("squared").probabilities, softmax(2 * test.logits))  # type: ignore[union-attr]
    assert not hasattr(logistic, "coef_")
    assert isinstance(found.calibrators["platt"], PlattScaling)
    found.to_html(tmp_path / "report.html", calibration=calibration, n_resamples=50, progress=False)
    assert "squared" in (tmp_path / "report.html").read_text()
    assert calibration_gap(calibration, calibrator=OutsideCalibrator(logistic, takes="logits")).calibration > 0


def test_the_report_shows_methods_from_outside(tmp_path: Path, few_draws: None) -> None:
    compare(rows(), rows(1), {"squared": squared}).to_html(tmp_path / "report.html", n_resamples=20)
    assert "squared" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_object_keeps_the_laws_of_calibrators() -> None:
    check_calibrator(LogisticRegression(), excluded=("a_class_without_rows_keeps_a_small_probability",))
    with pytest.raises(AssertionError, match=r"a_constant_per_row_changes_nothing: AssertionError.*Not equal"):
        check_calibrator(OutsideCalibrator(KNeighborsClassifier(), takes="logits"))


def test_rows_of_a_missing_class_weights_and_one_logit_reach_an_object() -> None:
    z, labels = tilted_rows()
    weights = np.linspace(0, 1, len(z))
    kept = labels != 1
    with pytest.warns(GlayersWarning, match="no row is labelled 1"):
        fitted = OutsideCalibrator(LogisticRegression(), "logits").fit(z[kept], labels[kept], weights[kept])
    relative = weights[kept] / weights[kept].mean()
    alone = LogisticRegression().fit(z[kept], labels[kept], relative)
    p = fitted.predict_proba(z)
    assert (p[:, 1] == 0).all()
    assert np.allclose(p[:, [0, 2, 3]], alone.predict_proba(z))
    with pytest.warns(GlayersWarning, match="KNeighborsClassifier takes no sample_weight"):
        OutsideCalibrator(KNeighborsClassifier()).fit(z, labels, weights)
    one, hits = tilted_rows(1)
    assert OutsideCalibrator(LogisticRegression(), "logits").fit(one, hits).predict_proba(one).shape == (240, 2)


def test_a_function_is_named_without_its_address() -> None:
    assert repr(OutsideCalibrator(squared)) == "OutsideCalibrator(calibrator=squared)"


def test_what_an_object_cannot_do_is_said(tmp_path: Path) -> None:
    import torch

    z, labels = tilted_rows()
    fitted = OutsideCalibrator(squared).fit(z, labels)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(z), fitted.predict_proba(z))
    with pytest.raises(GlayersError, match="OutsideStep cannot be saved: a file holds steps of glayers"):
        fitted.save(tmp_path / "a.safetensors")
    for call in (lambda: fitted.to_onnx(tmp_path / "a.onnx"), lambda: fitted.predict_proba(torch.tensor(z))):
        with pytest.raises(GlayersError, match="computes with NumPy alone"):
            call()
    bad: list[tuple[Any, str]] = [
        (lambda p: p[:, :2], r"must have shape \(rows, classes\), \(240, 4\); got \(240, 2\)"),
        (lambda p: 2 * p, "must not be negative and sum to 1; row 0 is"),
        (lambda p: p * np.nan, "must not be negative and sum to 1; row 0 is"),
        (lambda _: 1 / 0, "predicting failed, ZeroDivisionError: division by zero"),
        (RandomForestClassifier(n_estimators=-1), "RandomForestClassifier could not be fitted, .*n_estimators"),
        (3, "calibrator must have fit and predict_proba, or be a function of probabilities; got 3"),
    ]
    for outside, message in bad:
        with pytest.raises(GlayersError, match=message):
            OutsideCalibrator(outside).fit(z, labels)
    with pytest.raises(GlayersError, match="takes must be"):
        OutsideCalibrator(squared, takes="odds").fit(z, labels)  # type: ignore[arg-type]
    assert list(compare(rows(), rows(1), {"bad": bad[0][0]}).failed) == ["bad"]


# Registered classes


def test_a_registered_class_goes_by_its_name(halved: Any, tmp_path: Path) -> None:
    found = compare(rows(), rows(1), ["halved"])
    assert found.scorecards["halved"]["nll"] < found.scorecards["uncalibrated"]["nll"]
    model = CalibratedClassifier(GaussianNB(), method="halved").fit(rows().logits, rows().labels)
    assert isinstance(model.calibrated_classifiers_[0].calibrator, Halved)
    assert CALIBRATORS["halved"](by=3.0).by == 3.0
    check_calibrator("halved", excluded=("a_class_without_rows_keeps_a_small_probability",))
    fitted = found.calibrators["halved"]
    fitted.save(tmp_path / "halved.safetensors")
    loaded = load(tmp_path / "halved.safetensors")
    assert isinstance(loaded, Halved)
    assert loaded.rows_ == 400
    register(Halved)  # as a notebook does when a cell runs again


def test_only_registered_classes_are_saved_and_loaded(halved: Any, tmp_path: Path) -> None:
    path = tmp_path / "halved.safetensors"
    Halved().fit_predictions(rows()).save(path)
    del CALIBRATORS._values["halved"]
    with pytest.raises(BadFile, match=r"unknown calibrator '.*Halved': .* import your module that registers it"):
        load(path)
    with pytest.raises(GlayersError, match=r"Halved is not registered.*glayers\.register\(Halved\)"):
        Halved().fit_predictions(rows()).save(path)


def test_what_cannot_be_registered_is_said(halved: Any) -> None:
    class Other(Halved):
        pass

    with pytest.raises(GlayersError, match="'halved' is the name of Halved already"):
        register(Other)
    Other.methods = ()  # type: ignore[assignment]
    with pytest.raises(GlayersError, match=r"Other needs a name of lower-case words joined by hyphens: methods = "):
        register(Other)
    with pytest.raises(GlayersError, match=r"register takes a class derived from glayers\.Calibrator"):
        register(LogisticRegression)
    with pytest.raises(GlayersError, match="no laws are called x"):
        check_calibrator(TemperatureScaling(), excluded=("x",))


def test_a_calibrator_that_breaks_laws_is_told_which() -> None:
    class Broken(Calibrator):
        def _fit(self, given: Predictions) -> Fitted:
            mean = given.logits[np.isfinite(given.logits)].mean()  # depends on constants that softmax does not see
            return Fitted(Chain((Reference(), Scale(np.array(1 + abs(mean))))), "broken")

    with pytest.raises(AssertionError) as caught:
        check_calibrator(Broken())
    assert {line.split(":")[0] for line in str(caught.value).splitlines()} == {"a_constant_per_row_changes_nothing"}
    assert len(LAWS) == 14


# Installed packages

PACKAGE = """
import numpy as np
from glayers import Calibrator, Fitted, Method
from glayers.maps import Chain, Reference, Scale

class Thirds(Calibrator):
    methods = (Method("thirds", "Divides all logits by three", "ranking"),)

    def _fit(self, given):
        return Fitted(Chain((Reference(), Scale(np.array(1 / 3)))), "thirds")
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program where packages in the folder are installed."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from glayers.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder, check=False)


def test_the_methods_of_an_installed_package_are_known(tmp_path: Path) -> None:
    (tmp_path / "outside_thirds.py").write_text(PACKAGE)
    facts = tmp_path / "outside_thirds-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-thirds\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[glayers.calibrators]\nthirds = outside_thirds:Thirds\ngone = outside_thirds:Gone\n"
    )
    z, labels = tilted_rows()
    np.savez(tmp_path / "rows.npz", logits=z, labels=labels)
    listed = run(tmp_path, "methods")
    assert "thirds" in listed.stdout
    assert "outside_thirds:Gone of outside-thirds is left out: AttributeError" in listed.stderr
    assert json.loads(run(tmp_path, "methods", "--json").stdout)["thirds"]["kind"] == "Thirds"
    done = run(tmp_path, "fit", "rows.npz", "-m", "thirds", "-o", "thirds.safetensors")
    assert "thirds, fitted on 240 rows" in done.stdout
    assert run(tmp_path, "apply", "thirds.safetensors", "rows.npz", "-o", "out.npz").returncode == 0
    assert np.allclose(np.load(tmp_path / "out.npz")["probabilities"], softmax(z / 3))
    with pytest.raises(BadFile, match=r"unknown calibrator 'outside_thirds\.Thirds'.*a package that is not here"):
        load(tmp_path / "thirds.safetensors")


def test_a_package_may_name_a_method_and_a_metric_in_one_module(tmp_path: Path) -> None:
    sure = "SURE = Metric.of_function(lambda s, hits, w: w @ (s > 0.9), 'sure', name='sure')"
    metric = f"from glayers.metrics import Metric\n{sure}\n"
    (tmp_path / "outside_both.py").write_text(PACKAGE + metric)
    facts = tmp_path / "outside_both-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-both\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[glayers.calibrators]\nthirds = outside_both:Thirds\n[glayers.metrics]\nsure = outside_both:SURE\n"
    )
    z, labels = tilted_rows()
    np.savez(tmp_path / "rows.npz", logits=z, labels=labels)
    scored = run(tmp_path, "score", "rows.npz", "--all")
    assert re.search(r"^sure +0\.\d+", scored.stdout, re.MULTILINE), scored
    assert "left out" not in scored.stderr


def test_a_class_that_breaks_its_promise_of_rankings_or_changes_itself_fails_its_check() -> None:
    class Reversed(Halved):
        methods = (Method("reversed", "Reverses all logits", "ranking"),)

        def _fit(self, given: Predictions) -> Fitted:  # noqa: ARG002
            self.seen = True
            return Fitted(Chain((Reference(), Scale(np.array(-1.0)))), "reversed", attributes={"rows_": 0})

    with pytest.raises(AssertionError) as broken:
        check_calibrator(Reversed())
    assert "the_ranking_is_kept_if_promised: AssertionError: the order of the classes changes" in str(broken.value)
    assert "_fit changes the calibrator: seen" in str(broken.value)


# What goes wrong there


def fails(reason: Any) -> type[Calibrator]:
    """Return a registered class whose fit returns or raises something."""

    class Failing(Calibrator):
        methods = (Method("failing", "Fails"),)

        def _fit(self, given: Predictions) -> Fitted:  # noqa: ARG002
            if isinstance(reason, Exception):
                raise reason
            return reason

    return register(Failing)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (ZeroDivisionError("no rows"), "Failing could not be fitted, ZeroDivisionError: no rows"),
        (GlayersError("of its own"), "of its own"),
        (None, "Failing could not be fitted, AttributeError: .* has no attribute 'map'"),
        (Fitted(np.sqrt, "root"), "Failing could not be fitted, TypeError: the map of Fitted must be a Chain of steps"),  # type: ignore[arg-type]
        (Fitted(Chain((Diagonal(np.ones(5), np.zeros(5)),)), "wide"), "Failing could not be fitted, ValueError: "),
        (Fitted(Chain((Dense(np.ones((3, 2)), np.zeros(2)),)), "narrow"), "its map must give 3 logits per row; got"),
        (Fitted(Chain((Scale(np.array(np.nan)),)), "nan"), r"its map must give 3 logits per row; got array\(\[\[nan"),
    ],
)
def test_a_class_from_outside_that_fails_is_named_and_the_others_are_compared(reason: Any, said: str) -> None:
    failing = fails(reason)
    with pytest.raises(GlayersError, match=said):
        failing().fit_predictions(rows())
    found = compare(rows(), rows(1), ["failing", "temperature"])
    assert re.search(said, found.failed["failing"])
    assert list(found.calibrators) == ["temperature"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda p: p[:, :2], r"must have shape \(rows, classes\), \(400, 3\); got \(400, 2\)"),
        (lambda p: p[:-1], r"\(400, 3\); got \(399, 3\)"),
        (lambda p: None, r"predicting failed, TypeError|got \(\)"),  # noqa: ARG005
        (lambda p: p * np.nan, "must not be negative and sum to 1; row 0 is"),
        (lambda p: np.where(p > 0.9, np.inf, p), "must not be negative and sum to 1"),
        (lambda p: p / 2, "must not be negative and sum to 1"),
        (lambda p: p + 0j, "predicting failed, .*Cannot cast"),
        (lambda p, other: p, "predicting failed, TypeError"),  # noqa: ARG005
    ],
)
def test_a_function_that_returns_something_else_is_named(function: Any, said: str) -> None:
    found = compare(rows(), rows(1), {"odd": function, "platt": PlattScaling()})
    assert re.search(said, found.failed["odd"])
    assert list(found.calibrators) == ["platt"]


class Told:
    """An object that says which classes it knows, and predicts the input in their order."""

    def __init__(self, classes: Any) -> None:
        self.told = classes

    def fit(self, X: Any, y: Any) -> "Told":  # noqa: ARG002
        self.classes_ = np.asarray(self.told)
        return self

    def predict_proba(self, X: Any) -> Any:
        return X[:, self.classes_]


def test_classes_of_an_object_may_have_any_order_but_must_be_those_of_the_labels() -> None:
    given = rows()
    p = OutsideCalibrator(Told([2, 0, 1])).fit_predictions(given).predict_proba(given.logits)
    np.testing.assert_allclose(p, given.probabilities())
    for classes in (["b", "a", "c"], [0, 7, 2], [0, 0, 2], [0.5, 1, 2]):
        found = compare(given, rows(1), {"told": Told(classes)})
        assert "classes_ must be different labels that it was given; got" in found.failed["told"]


def test_a_setting_that_cannot_be_copied_is_named() -> None:
    locked = Told([0, 1, 2])
    locked.told = threading.Lock()
    with pytest.raises(GlayersError, match=r"the setting calibrator=.* cannot be copied: cannot pickle"):
        compare(rows(), rows(1), {"locked": locked})


def test_classes_that_cannot_be_made_or_named_are_not_registered() -> None:
    class Unwritten(Calibrator):
        methods = (Method("unwritten", "Has no fit"),)

    with pytest.raises(GlayersError, match="Unwritten cannot be made: write its _fit"):
        register(Unwritten)  # type: ignore[type-abstract]
    for methods in (Method("one", "No tuple"), (Method("A b", "Odd"),), (Method(None, "Odd"),), ("halved",)):  # type: ignore[arg-type]
        named = type("Named", (Halved,), {"methods": methods})
        with pytest.raises(GlayersError, match="Named needs a name of lower-case words joined by hyphens"):
            register(named)


def test_an_entry_point_that_fails_leaves_the_others() -> None:
    def broken() -> Any:
        raise ImportError("no module named gone")

    points = [
        SimpleNamespace(value="gone:Gone", dist=SimpleNamespace(name="gone"), load=broken),
        SimpleNamespace(value="odd:Odd", dist=None, load=lambda: 7),
        SimpleNamespace(value="ours:Halved", dist=SimpleNamespace(name="ours"), load=lambda: Halved),
    ]
    with patch("glayers.registry.entry_points", lambda group: points):  # noqa: ARG005
        CALIBRATORS._has_read_packages = False
        with pytest.warns(GlayersWarning) as caught:
            assert "halved" in CALIBRATORS
    words = [str(warning.message) for warning in caught]
    assert "gone:Gone of gone is left out: ImportError: no module named gone" in words
    assert any(word.startswith("odd:Odd of a package is left out: GlayersError: register takes") for word in words)


def test_a_map_with_foreign_steps_predicts_and_compares_but_is_not_saved(tmp_path: Path) -> None:
    class Power(Step):
        power: Annotated[Any, Numbers_()]

        def __call__(self, logits: Any) -> Any:
            return logits * self.power

    powered = fails(Fitted(Chain((Reference(), Power(np.array(0.5)))), "power"))
    found = compare(rows(), rows(1), {"power": powered()})
    found.to_html(tmp_path / "r.html", n_resamples=20)
    np.testing.assert_allclose(found.calibrators["power"].transform(rows().logits), rows().logits / 2)
    with pytest.raises(GlayersError, match="Power cannot be saved: a file holds steps of glayers, and never code"):
        found.calibrators["power"].save(tmp_path / "m.safetensors")


def test_threads_wait_for_the_methods_of_packages() -> None:
    started, asked = threading.Event(), threading.Event()

    def slow() -> type[Calibrator]:
        started.set()
        asked.wait(0.5)
        assert "nowhere" not in CALIBRATORS, "a package may ask while it is read"
        return Halved

    found: list[bool] = []
    point = SimpleNamespace(value="ours:Halved", dist=None, load=slow)
    with patch("glayers.registry.entry_points", lambda group: [point]):  # noqa: ARG005
        CALIBRATORS._has_read_packages = False
        threads = [threading.Thread(target=lambda: found.append("halved" in CALIBRATORS)) for _ in range(2)]
        threads[0].start()
        started.wait()
        threads[1].start()
        for thread in threads:
            thread.join()
    del CALIBRATORS._values["halved"]
    assert found == [True, True]


def test_a_refused_class_leaves_no_method_and_none_of_ours_is_replaced() -> None:
    first, taken = Method("new-one", "x"), Method("temperature", "x")
    both = type("Both", (Halved,), {"methods": (first, taken)})
    with pytest.raises(GlayersError, match="'temperature' is the name of TemperatureScaling already"):
        register(both)
    assert "new-one" not in CALIBRATORS
    twin = type("TemperatureScaling", (Halved,), {"methods": (taken,), "__module__": "glayers.evil"})
    with pytest.raises(GlayersError, match="'temperature' is the name of TemperatureScaling already"):
        register(twin)
    assert CALIBRATORS["temperature"].kind is TemperatureScaling


@pytest.mark.parametrize("name", ["MultiLabelCalibrator", "Mine"])
def test_a_subclass_of_several_labels_is_not_saved_as_ours(name: str, tmp_path: Path) -> None:
    kind = type(name, (MultiLabelCalibrator,), {})
    z = np.random.default_rng(0).normal(size=(50, 2))
    fitted = kind(TemperatureScaling()).fit(z, (z > 0.1).astype(float))
    with pytest.raises(GlayersError, match=f"{name} is a class of your own, which `load` would not find"):
        fitted.save(tmp_path / "mine.safetensors")
