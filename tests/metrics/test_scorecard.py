import json

import numpy as np
import pytest

from glayers import BadPredictions, metrics
from tests.strategies import make_case


def test_a_scorecard_holds_what_each_metric_says() -> None:
    p, y, w = make_case(7, 300, 12)
    card = metrics.scorecard(p, y, w)
    assert card.rows == 300
    assert card.classes == 12
    assert card.nll == metrics.nll(p, y, w)
    assert card.ks == metrics.ks_error(p, y, w)
    assert card.mean_top_ks == metrics.mean_top_ks(p, y, w, ranks=10)
    assert card.top_5_accuracy == metrics.top_k_accuracy(p, y, w, k=5)
    assert card.confidence == pytest.approx(np.average(p.max(axis=1), weights=w))
    assert card.ece_equal_mass == metrics.ece(p, y, w, binning="equal_mass")


def test_it_becomes_json_markdown_and_text() -> None:
    p, y, _ = make_case(7, 300, 3)
    card = metrics.scorecard(p, y)
    assert json.loads(json.dumps(card.to_dict()))["rows"] == 300
    assert f"| NLL | {card.nll:.4f} |" in card.to_markdown()
    assert f"{100 * card.ks:.2f} %" in str(card)


def test_logits_give_the_same_scores_and_an_exact_nll() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(400, 5)) * 40).astype(np.float32)
    labels = rng.integers(0, 5, 400)
    card = metrics.scorecard_from_logits(logits, labels)
    powers = np.exp(logits.astype(float) - logits.max(axis=1, keepdims=True))
    p = powers / powers.sum(axis=1, keepdims=True)
    assert card.ks == pytest.approx(metrics.ks_error(p, labels), abs=1e-6)
    assert card.nll == metrics.nll_from_logits(logits, labels)


def test_rows_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(BadPredictions, match=r"row 1 sums to 0\.8"):
        metrics.scorecard([[0.5, 0.5], [0.4, 0.4]], [0, 1])
