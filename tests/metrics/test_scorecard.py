import json

import numpy as np
import pytest

from glayers import BadPredictions, Predictions, metrics
from tests.strategies import confidences_of, make_case


def test_a_scorecard_holds_what_each_metric_says() -> None:
    p, _, w = make_case(7, 300, 12)
    y = (p.cumsum(axis=1) < np.random.default_rng(7).random((300, 1))).sum(
        axis=1
    )  # nearly calibrated: gaps of both signs
    expected: dict[str, float] = {
        "rows": 300,
        "classes": 12,
        "top_5_accuracy": metrics.top_k_accuracy(p, y, sample_weight=w, k=5),
        "confidence": metrics.mean_confidence(p, y, sample_weight=w),
        "ks": metrics.ks(p, y, sample_weight=w),
        "mean_top_ks": metrics.mean_top_ks(p, y, sample_weight=w, n_ranks=10),
    }
    found = metrics.scorecard(p, y, sample_weight=w).to_dict()
    by_coverage = ("accuracy_at_coverage", "coverage_at_accuracy")
    for name in set(found) - set(by_coverage):
        value = found[name]
        if name not in expected:  # then the field has the name of its metric
            expected[name] = getattr(metrics, name)(p, y, sample_weight=w)
        assert value == pytest.approx(expected[name]), name
    assert len(set(found.values())) == len(found)  # a field that holds its neighbour's number would not go unseen
    unweighted = metrics.scorecard(p, y).to_dict()
    assert [name for name in found if found[name] == unweighted[name]] == ["rows", "classes"]


def test_few_classes_are_named_in_print() -> None:
    printed = metrics.scorecard(*make_case(7, 60, 3)[:2]).printed()
    assert {"accuracy, top 3", "KS, mean over top 3 ranks"} <= set(printed)
    printed = metrics.scorecard(*make_case(7, 60, 12)[:2]).printed()
    assert {"accuracy, top 5", "KS, mean over top 10 ranks"} <= set(printed)


def test_it_becomes_json_markdown_and_text() -> None:
    p, y, _ = make_case(7, 300, 3)
    card = metrics.scorecard(p, y)
    assert json.loads(json.dumps(card.to_dict()))["rows"] == 300
    assert f"| NLL | {card['nll']:.4f} |" in card.to_markdown()
    assert f"{100 * card['ks']:.2f} %" in str(card)


def test_logits_give_the_same_scores_and_an_exact_nll() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(400, 5)) * 40).astype(np.float32)
    labels = rng.integers(0, 5, 400)
    card = metrics.scorecard(Predictions(logits, labels))
    powers = np.exp(logits.astype(float) - logits.max(axis=1, keepdims=True))
    p = powers / powers.sum(axis=1, keepdims=True)
    assert card["ks"] == pytest.approx(metrics.ks(p, labels), abs=1e-06)
    assert card["nll"] == metrics.nll(Predictions(logits, labels))


def test_rows_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(BadPredictions, match=r"row 1 sums to 0\.8"):
        metrics.scorecard([[0.5, 0.5], [0.4, 0.4]], [0, 1])


def test_float64_logits_are_scored_in_float64() -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(400, 5)), rng.integers(0, 5, 400)
    powers = np.exp(logits)
    p = powers / powers.sum(axis=1, keepdims=True)
    found, exact = metrics.scorecard(Predictions(logits, labels)), metrics.scorecard(p, labels)
    for name, value in found.to_dict().items():
        assert value == pytest.approx(exact.to_dict()[name], rel=1e-11), name


def test_what_is_checked_once_is_not_checked_again() -> None:
    # From probabilities 0.5 to 0.7 come logits 0 to 0.85, which look like probabilities and are not.
    rows = Predictions.from_probabilities([[0.5], [0.7], [0.6]], [1, 1, 0])
    assert metrics.scorecard(rows)["confidence"] == pytest.approx(0.6)


def test_labels_and_weights_come_with_predictions_and_confidences() -> None:
    p, y, w = make_case(8, 50, 3)
    rows = Predictions(np.log(p), y, weights=w)
    assert dict(metrics.scorecard(rows)) == pytest.approx(dict(metrics.scorecard(p, y, sample_weight=w)))
    for given in (rows, confidences_of(metrics.top, rows)):
        for wrong in ({"labels": y}, {"sample_weight": w}):
            (name,) = wrong
            with pytest.raises(BadPredictions, match=f"{name} come with the {type(given).__name__}; leave {name} out"):
                metrics.scorecard(given, **wrong)
    with pytest.raises(BadPredictions, match="labels are missing"):
        metrics.scorecard(p)


def test_what_is_written_as_json_has_no_infinite_numbers() -> None:
    impossible, labels = np.array([[1.0, 0.0], [0.5, 0.5]] * 10), [1, 0] * 10
    records = [
        metrics.scorecard(impossible, labels).to_dict(),
        metrics.intervals(impossible, labels, metrics=["nll", "ks"], n_resamples=19).to_dict(),
        metrics.calibration_test(impossible, labels, groups=np.arange(20) % 5, n_resamples=99).to_dict(),
        metrics.label_scorecards([[0.9, 0.5], [0.5, 0.5]], [[0, 1], [1, 0]]).to_dict(),
    ]
    for record in records:
        json.dumps(record, allow_nan=False)
    assert records[0]["nll"] is None
