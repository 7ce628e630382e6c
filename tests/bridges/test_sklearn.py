"""`CalibratedClassifier` keeps scikit-learn's contract, and calibrates what it wraps."""

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from glayers import BadPredictions, CalibratedClassifier, GlayersError, GlayersWarning, TemperatureScaling
from tests.strategies import Numbers


def rows(n_classes: int = 3, n: int = 400) -> tuple[Numbers, Numbers]:
    return make_classification(n, 8, n_informative=5, n_classes=n_classes, flip_y=0.2, random_state=1)


@pytest.mark.filterwarnings("ignore")  # of a handful of rows, our methods have things to say
@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifier(LogisticRegression(), cv=2),
        CalibratedClassifier(GaussianNB(), "temperature", cv=3),
        CalibratedClassifier(GaussianNB(), "temperature", cv=3, ensemble=False),
    ],
    ids=["default", "shared", "one"],
)
def test_every_check_of_scikit_learn_passes(model: CalibratedClassifier) -> None:
    results = check_estimator(model, on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 50


@pytest.mark.parametrize(("estimator", "n_classes"), [(GaussianNB(), 2), (DecisionTreeClassifier(random_state=0), 3)])
def test_log_loss_of_new_rows_falls(estimator: Any, n_classes: int) -> None:
    x, y = rows(n_classes, 800)
    before = log_loss(y[400:], estimator.fit(x[:400], y[:400]).predict_proba(x[400:]))
    options: list[Any] = ["auto", True, False]
    for ensemble in options:
        after = CalibratedClassifier(estimator, cv=3, ensemble=ensemble).fit(x[:400], y[:400]).predict_proba(x[400:])
        assert log_loss(y[400:], after) < 0.98 * before


def test_classifiers_and_calibrators_are_one_per_fold_or_one_for_all_rows() -> None:
    x, y = rows()
    shared = CalibratedClassifier(GaussianNB(), "temperature", cv=4).fit(x, y).calibrated_classifiers_
    assert [len({id(each) for each in part}) for part in zip(*shared, strict=True)] == [4, 1]
    assert shared[0].calibrator.diagnostics_.rows == 400
    several = CalibratedClassifier(GaussianNB(), "temperature", cv=4, ensemble=True).fit(x, y).calibrated_classifiers_
    assert [pair.calibrator.diagnostics_.rows for pair in several] == [100] * 4
    (one,) = CalibratedClassifier(GaussianNB(), "temperature", cv=4, ensemble=False).fit(x, y).calibrated_classifiers_
    assert one.calibrator.temperature_ == shared[0].calibrator.temperature_
    assert np.array_equal(one.estimator.predict_proba(x), GaussianNB().fit(x, y).predict_proba(x))


def test_a_frozen_classifier_stays_as_it_is_and_keeps_its_classes() -> None:
    x, y = rows()
    fitted = LogisticRegression().fit(x[:200], y[:200])
    kept = y[200:] != 2  # a class that the calibration rows lack
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        model = CalibratedClassifier(FrozenEstimator(fitted), "temperature").fit(x[200:][kept], y[200:][kept])
        alone = TemperatureScaling().fit(fitted.decision_function(x[200:][kept]), y[200:][kept])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.calibrated_classifiers_[0].calibrator.temperature_ == alone.temperature_
    with pytest.raises(BadPredictions, match="does not know the label 7"):
        model.fit(x, np.where(y == 2, 7, y))


def test_binary_decision_values_are_the_logit_of_the_second_label() -> None:
    x, y = rows(2)
    fitted = LinearSVC().fit(x[:200], y[:200])
    model = CalibratedClassifier(FrozenEstimator(fitted), "platt").fit(x[200:], y[200:])
    p = model.predict_proba(x)
    assert np.corrcoef(p[:, 1], fitted.decision_function(x))[0, 1] > 0.8


def test_probabilities_of_zero_get_a_finite_logit_and_are_counted() -> None:
    x, y = rows(2)
    model = CalibratedClassifier(DecisionTreeClassifier(random_state=0), "temperature").fit(x, y)
    assert model.predict_proba(x).min() > 0
    notes = model.calibrated_classifiers_[0].calibrator.diagnostics_.notes
    assert any("probabilities are 0 and were raised to 0.25" in note for note in notes)


def test_labels_may_be_text_and_features_a_data_frame() -> None:
    x, y = rows()
    frame, names = pd.DataFrame(x).add_prefix("x"), pd.Series(np.array(["b", "c", "a"])[y])
    model = CalibratedClassifier(GaussianNB(), "temperature").fit(frame, names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert np.mean(model.predict(frame) == names) > 0.6
    plain = CalibratedClassifier(GaussianNB(), "temperature").fit(x, (y + 1) % 3)
    assert np.allclose(model.predict_proba(frame), plain.predict_proba(x), atol=1e-9)


def test_groups_stay_together_in_the_folds_and_reach_the_calibrator(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows()
    groups, seen = np.arange(400) // 8, []
    given = TemperatureScaling._check_input

    def recorded(*args: Any) -> Any:
        seen.append(args[-1])
        return given(*args)

    monkeypatch.setattr(TemperatureScaling, "_check_input", recorded)
    for cv in (5, GroupKFold(5)):
        CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=cv).fit(x, y, groups=groups)
    assert sum(len(np.unique(each)) for each in seen) == 2 * 50


def test_weights_reach_the_classifier_and_the_calibrator() -> None:
    x, y = rows()
    kept = np.random.default_rng(0).random(400) < 0.7
    cut = [(np.arange(200), np.arange(200, 400)), (np.arange(200, 400), np.arange(200))]
    where = np.cumsum(kept) - 1
    cut_kept = [tuple(where[part[kept[part]]] for part in split) for split in cut]
    bayes = GaussianNB(var_smoothing=1e-15)  # which scikit-learn scales by the variance of all rows
    weighted = CalibratedClassifier(bayes, "temperature", cv=cut).fit(x, y, sample_weight=kept.astype(float))
    fewer = CalibratedClassifier(bayes, "temperature", cv=cut_kept).fit(x[kept], y[kept])
    assert np.allclose(weighted.predict_proba(x), fewer.predict_proba(x), atol=1e-6)
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    with pytest.warns(GlayersWarning, match="Pipeline takes no sample_weight"):
        CalibratedClassifier(pipeline, "temperature").fit(x, y, sample_weight=kept.astype(float))
    CalibratedClassifier(pipeline, "temperature").fit(x, y, gaussiannb__sample_weight=kept.astype(float))


class Recorder(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps the metadata it got."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, colour: Any = None) -> Any:
        self.model_, self.got_ = GaussianNB().fit(X, y), (sample_weight, colour)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)


def test_few_rows_with_most_of_the_weight_are_warned_of() -> None:
    X, y = rows()  # noqa: N806  # scikit-learn's name
    with pytest.warns(GlayersWarning, match=r"400 rows count as 1\.0"):
        CalibratedClassifier(LogisticRegression(), cv=2).fit(X, y, sample_weight=np.append(np.ones(399), 1e6))


def test_metadata_is_routed() -> None:
    x, y = rows()
    weights = np.linspace(1, 2, 400)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Recorder().set_fit_request(sample_weight=True, colour=True)
        model = CalibratedClassifier(inner, "temperature", cv=GroupKFold(4)).set_fit_request(sample_weight=True)
        fitted = clone(model).fit(x, y, sample_weight=weights, groups=np.arange(400) // 10, colour=y)
        for pair in fitted.calibrated_classifiers_:
            assert pair.estimator.got_[0].shape == pair.estimator.got_[1].shape == (300,)
        with pytest.raises(TypeError, match="shape"):
            clone(model).fit(x, y, shape=y)


def test_it_is_searched_cross_validated_copied_and_pickled() -> None:
    x, y = rows()
    pipeline = make_pipeline(StandardScaler(), CalibratedClassifier(GaussianNB(), "temperature"))
    grid = {
        "calibratedclassifier__method": ["temperature", "vector"],
        "calibratedclassifier__estimator__var_smoothing": [1e-9, 1e-3],
    }
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=2).fit(x, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict_proba(x), search.predict_proba(x))
    assert cross_val_score(clone(pipeline), x, y, scoring="neg_log_loss", cv=2).mean() > -np.log(3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (CalibratedClassifier(GaussianNB(), "temperatur"), "a calibrator must be.*got 'temperatur'"),
        (CalibratedClassifier(GaussianNB(), 7), "a calibrator must be"),
        (CalibratedClassifier(GaussianNB()).set_params(ensemble="often"), "ensemble must be True, False"),
        (CalibratedClassifier(GaussianNB()).set_params(ensemble=np.ones(2)), "ensemble must be True, False"),
        (CalibratedClassifier(SVC(decision_function_shape="ovo")), None),
    ],
)
def test_bad_settings_are_named(model: CalibratedClassifier, message: str | None) -> None:
    n_classes = 4 if message is None else 3
    with pytest.raises(GlayersError, match=message or "SVC gives 6 decision values for 4 classes"):
        model.fit(*rows(n_classes))


def test_a_fold_without_a_class_is_named() -> None:
    x, y = rows()
    order = np.argsort(y, kind="stable")
    with pytest.raises(BadPredictions, match=r"a fold has no row of class .* use a stratified `cv`"):
        CalibratedClassifier(GaussianNB(), cv=KFold(3)).fit(x[order], y[order])


def test_few_rows_without_an_error_give_finite_odds() -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    model = CalibratedClassifier(LogisticRegression(C=1e6)).fit(x, x[:, 0] > 0)  # separable: no finite slope is best
    p = model.predict_proba(x)
    assert np.array_equal(p[:, 1] > 0.5, x[:, 0] > 0)
    assert 0 < p.min() < 0.1
