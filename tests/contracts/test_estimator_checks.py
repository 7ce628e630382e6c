"""scikit-learn's own checks of an estimator, over every calibrator, and its tools at work with one."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from glayers import TemperatureScaling, VectorScaling
from tests.contracts.calibrators import make, tilted

_COLUMNS = "has more labels than columns; a column of logits is a class"
_WORDS = "wants other words in the error; test_every_calibrator.py has it with ours"
_SAME_ROWS = "fitting and then transforming the same rows is what calibration warns of: there is no fit_transform"
# What contradicts the contract of a calibrator, and why. Each must fail: one that passes has no place here.
EXCLUDED = {
    "check_classifier_data_not_an_array": _COLUMNS,
    "check_classifiers_classes": "has names for labels; ours are class numbers, the columns of the logits",
    "check_classifiers_regression_target": _WORDS,
    "check_classifiers_train": "learns classes from features; these are logits, and their columns the classes",
    "check_complex_data": _WORDS,
    "check_dtype_object": _WORDS,
    "check_estimators_empty_data_messages": _WORDS,
    "check_estimators_fit_returns_self": _COLUMNS,
    "check_estimators_overwrite_params": _COLUMNS,
    "check_fit2d_1feature": "has labels up to 2 on one column, which is the logit of two classes",
    "check_fit2d_predict1d": _WORDS,
    "check_fit_score_takes_y": "wants the arguments of fit called X and y; ours are logits and labels",
    "check_n_features_in_after_fitting": _WORDS,
    "check_readonly_memmap_input": _COLUMNS,
    "check_requires_y_none": _WORDS,
    "check_sample_weight_equivalence_on_dense_data": "passes labels as y=; test_every_calibrator.py has the law",
    "check_sample_weights_not_an_array": _COLUMNS,
    "check_sample_weights_not_overwritten": _COLUMNS,
    "check_sample_weights_pandas_series": _COLUMNS,
    "check_sample_weights_shape": _COLUMNS,
    "check_supervised_y_2d": "wants a warning for labels (n, 1), which can mean but one thing",
    "check_transformer_data_not_an_array": _SAME_ROWS,
    "check_transformer_general": _SAME_ROWS,
    "check_transformer_preserve_dtypes": _SAME_ROWS,
}
# What only some of them cannot do.
EXCLUDED_FOR_SOME = {
    "check_classifiers_one_label": (
        "wants the only label seen predicted everywhere; these keep the predicted class, or stop short of it",
        {"temperature", "vector", "g-layers"},
    ),
    "check_fit2d_1sample": (
        "wants other words where one row cannot be cut into folds",
        {"auto", "g-layers"},
    ),
}

# The base class has `fit`, settings and tags, so each way to fit once is enough: exact, by parts, tables, torch, all.
QUICK: dict[str, dict[str, Any]] = {
    "temperature": {},
    "vector": {},
    "isotonic": {},
    "g-layers": {"max_epochs": 1},
    "auto": {"time_budget": 0.0},
}


# Their data is a handful of rows, of which our methods have things to say; and of estimators in general they warn.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_the_checks_that_apply_pass_and_only_the_others_fail(name: str) -> None:
    calibrator = make(name).set_params(**QUICK[name])
    excluded = EXCLUDED | {check: why for check, (why, names) in EXCLUDED_FOR_SOME.items() if name in names}
    results = check_estimator(calibrator, expected_failed_checks=excluded, on_skip=None)
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert len(passed) >= 35  # of 64, and 26 or 27 are excluded
    assert passed.isdisjoint(excluded), "no longer fails: take it from the excluded"


# What the tags and the names of attributes are for.


def test_probabilities_can_be_scored_in_cross_validation() -> None:
    z, labels = tilted()
    assert is_classifier(TemperatureScaling())
    scores = cross_val_score(TemperatureScaling(), z, labels, scoring="neg_log_loss", cv=3)
    alone = TemperatureScaling().fit(z, labels).diagnostics_
    assert -alone.loss_before < scores.mean()
    assert scores.mean() == pytest.approx(-alone.loss_after, abs=0.1)


def test_settings_can_be_searched_for() -> None:
    z, labels = tilted()
    search = GridSearchCV(VectorScaling(), {"strength": [1e-2, 1e6]}, scoring="neg_log_loss", cv=3).fit(z, labels)
    assert search.best_params_ == {"strength": 1e-2}


def test_a_calibrator_ends_a_pipeline_and_weights_reach_it() -> None:
    z, labels = tilted()
    weights = np.linspace(0.0, 2.0, len(z))
    pipeline = make_pipeline(FunctionTransformer(np.arcsinh), TemperatureScaling())
    pipeline.fit(z, labels, temperaturescaling__sample_weight=weights)
    alone = TemperatureScaling().fit(np.arcsinh(z), labels, weights)
    assert np.array_equal(pipeline.predict_proba(z), alone.predict_proba(np.arcsinh(z)))
