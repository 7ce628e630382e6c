"""Metrics of the user's own: registered, passed as functions, and installed with another package."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import BadPredictions, Confidences, GlayersError, GlayersWarning, Predictions, compare
from glayers.metrics import (
    METRICS,
    Metric,
    StreamingScorecard,
    classwise_ece,
    ece,
    intervals,
    ks,
    mean_confidence,
    mean_top_ks,
    paired_differences,
    register,
    scorecard,
    top_k_accuracy,
)
from tests.strategies import Numbers, make_case

P, Y, W = make_case(3, 200, 4)


@pytest.fixture(autouse=True)
def the_table_of_before() -> Iterator[None]:
    before = dict(METRICS)
    yield
    for name in set(METRICS) - set(before):
        del METRICS[name]


def sure_and_wrong(scores: Numbers, hits: Numbers, weights: Numbers) -> float:
    return float(weights @ ((scores > 0.5) & (hits == 0)))


def second_choice(probabilities: Numbers, labels: Numbers, weights: Numbers) -> float:
    return float(weights @ (np.argsort(-probabilities, axis=1)[:, 1] == labels))


def test_a_registered_metric_is_in_every_table() -> None:
    register(Metric.of_function(sure_and_wrong, "sure and wrong", unit="percent", digits=1))
    register(Metric.of_function(second_choice, about="rows", per_row=False))
    confidence, correct = P.max(axis=1), P.argmax(axis=1) == Y
    wanted = float(W @ ((confidence > 0.5) & ~correct) / W.sum())
    card = scorecard(P, Y, sample_weight=W)
    assert list(card)[-2:] == ["sure_and_wrong", "second_choice"]
    assert card["sure_and_wrong"] == pytest.approx(wanted)
    assert card["second_choice"] == pytest.approx(
        top_k_accuracy(P, Y, sample_weight=W, k=2) - top_k_accuracy(P, Y, sample_weight=W, k=1)
    )
    assert f"sure and wrong  {100 * wanted:.1f} %".split() == str(card).splitlines()[-2].split()
    assert list(scorecard(Confidences(confidence, correct)))[-1] == "sure_and_wrong"
    streamed = StreamingScorecard()
    streamed.exact_entries = 0
    streamed.update(P[:90], Y[:90], sample_weight=W[:90]).update(P[90:], Y[90:], sample_weight=W[90:])
    with pytest.warns(GlayersWarning, match="^second_choice: left out, as the rows are too many to keep"):
        found = pickle.loads(pickle.dumps(streamed)).result()
    assert found["sure_and_wrong"] == pytest.approx(wanted)
    found = intervals(P, Y, n_resamples=50)
    assert found["sure_and_wrong"].low <= found["sure_and_wrong"].value <= found["sure_and_wrong"].high
    rows = Predictions(np.log(P), Y)
    half = Predictions(np.log(P) / 2, Y)
    differences = paired_differences(
        {"a": rows, "b": half}, metrics=["sure_and_wrong", "second_choice"], n_resamples=50
    )
    assert differences.between("second_choice", "b", "a").interval.value == 0
    with pytest.warns(GlayersWarning, match="rows are the same"):
        assert "sure_and_wrong" in compare(rows, rows, ["temperature"]).scorecards["temperature"]


def test_intervals_take_functions_beside_names() -> None:
    found = intervals(P, Y, sample_weight=W, metrics=[second_choice, "nll", ks], n_resamples=50)
    assert list(found) == ["second_choice", "nll", "ks"]
    assert found["second_choice"].low < found["second_choice"].value < found["second_choice"].high
    assert "second_choice" in str(found)
    assert "second_choice" not in METRICS
    sure = Confidences(P.max(axis=1), P.argmax(axis=1) == Y)
    assert intervals(sure, metrics=sure_and_wrong, n_resamples=50)["sure_and_wrong"].value == pytest.approx(
        np.mean((P.max(axis=1) > 0.5) & (P.argmax(axis=1) != Y))
    )


def test_what_is_wrong_with_a_function_is_said() -> None:
    def writes(probabilities: Any, labels: Any, weights: Any) -> float:
        probabilities[0] = 0
        return 0.0

    wrong: dict[str, Any] = {
        "writes failed: ValueError: assignment destination is read-only": writes,
        r"<lambda> must return one number; got array": lambda *_: np.ones(3),
        "<lambda> must return one number; got nan": lambda *_: float("nan"),
        "<lambda> failed: TypeError: .*positional": lambda: 0.0,
        "<lambda> must return one number; got None": lambda *_: None,
    }
    for message, function in wrong.items():
        with pytest.raises(GlayersError, match=f"the metric {message}"):
            intervals(P, Y, metrics=[function], n_resamples=20)
    with pytest.raises(BadPredictions, match="two functions are called <lambda>; give them different names"):
        intervals(P, Y, metrics=[lambda *_: 0.0, lambda *_: 1.0], n_resamples=20)


def test_names_are_unique_and_can_be_typed() -> None:
    def ks(*_: Any) -> float:
        return 0.0

    with pytest.raises(BadPredictions, match="'ks' is the name of another metric, of glayers"):
        register(Metric.of_function(ks))
    with pytest.raises(BadPredictions, match="'ks' is the name of another metric"):
        intervals(P, Y, metrics=[ks], n_resamples=20)
    with pytest.raises(BadPredictions, match=r"must be small letters, digits and underscores.*'<lambda>'"):
        register(Metric.of_function(lambda *_: 0.0))
    with pytest.raises(BadPredictions, match="register takes a Metric"):
        register(ks)  # type: ignore[arg-type]
    first = register(Metric.of_function(sure_and_wrong))
    again = register(Metric.of_function(sure_and_wrong, "another label"))
    assert METRICS["sure_and_wrong"] is again is not first


def test_a_function_defined_again_is_used_and_not_the_registered_one() -> None:
    def constant(value: float) -> Any:
        def found(*_: Any) -> float:
            return value

        return found

    register(Metric.of_function(constant(1.0), "first"))
    assert intervals(P, Y, metrics=[constant(2.0)], n_resamples=20)["found"].value == 2.0
    assert intervals(P, Y, metrics=["found"], n_resamples=20)["found"].value == 1.0


def test_the_functions_of_this_library_and_metrics_themselves_are_metrics() -> None:
    chosen: list[Any] = [mean_top_ks, mean_confidence, top_k_accuracy, ece, classwise_ece, METRICS["aurc"]]
    chosen += [Metric.of_function(second_choice, about="rows")]
    found = intervals(P, Y, metrics=chosen, n_resamples=20)
    names = ["mean_top_ks", "confidence", "top_5_accuracy", "ece", "classwise_ece", "aurc", "second_choice"]
    assert list(found) == names
    card = scorecard(P, Y)
    assert [found[name].value for name in names[:-1]] == pytest.approx([card[name] for name in names[:-1]])


def test_a_value_per_row_is_streamed_exactly() -> None:
    def surprise(scores: Numbers, hits: Numbers) -> Numbers:
        return np.abs(scores - hits)

    register(Metric.of_function(surprise, per_row=True))
    wanted = W @ np.abs(P.max(axis=1) - (P.argmax(axis=1) == Y)) / W.sum()
    assert scorecard(P, Y, sample_weight=W)["surprise"] == pytest.approx(wanted)
    streamed = StreamingScorecard()
    streamed.exact_entries = 0
    streamed.update(P[:90], Y[:90], sample_weight=W[:90]).update(P[90:], Y[90:], sample_weight=W[90:])
    assert streamed.result()["surprise"] == pytest.approx(wanted, rel=1e-12)
    for values in (np.ones(3), np.full(200, np.nan), 1.0):
        wrong = Metric.of_function(lambda *_, v=values: v, per_row=True, about="rows")
        with pytest.raises(GlayersError, match="must return a number for each of 200 rows"):
            intervals(P, Y, metrics=[wrong], n_resamples=20)


def test_groups_are_drawn_whole_and_zero_weights_do_not_count() -> None:
    groups = np.arange(200) // 10
    alone = intervals(P, Y, metrics=[second_choice], n_resamples=200)["second_choice"]
    copies = np.repeat(np.arange(20), 10)
    together = intervals(P[copies], Y[copies], groups=groups, metrics=[second_choice], n_resamples=200)
    assert together["second_choice"].standard_error > 2 * alone.standard_error
    weights = np.where(np.arange(200) < 50, 1.0, 0.0)
    kept = intervals(P, Y, sample_weight=weights, metrics=[second_choice], n_resamples=20)["second_choice"]
    assert kept.value == pytest.approx(np.mean(np.argsort(-P[:50], axis=1)[:, 1] == Y[:50]))


def test_infinite_metrics_have_no_differences() -> None:
    def where_weights_vanish(probabilities: Numbers, labels: Numbers, weights: Numbers) -> float:
        return float("inf") if (weights == 0).any() else 0.0

    for function in (lambda *_: float("inf"), where_weights_vanish):
        with pytest.raises(BadPredictions, match=r"a: .* is infinite\. It has no differences; leave"):
            paired_differences({"a": P, "b": P}, Y, metrics=[function], n_resamples=20)


def test_descriptions_are_checked() -> None:
    for wrong in ({"unit": "points"}, {"about": "row"}, {"kind": "mean"}, {"better": "more"}, {"digits": "two"}):
        with pytest.raises(BadPredictions, match=f"{next(iter(wrong))} must be"):
            Metric.of_function(sure_and_wrong, **wrong)
    with pytest.raises(BadPredictions, match="at_most must be at least 1"):
        Metric.of_function(sure_and_wrong, about="ranks")
    with pytest.raises(BadPredictions, match="made of a function; got 3"):
        Metric.of_function(3)  # type: ignore[arg-type]
    assert Metric.of_function(sure_and_wrong, "in {braces} {0}").label == "in {braces} {0}"


PACKAGE = """
import numpy as np
from glayers.metrics import Metric

def tail_error(scores, hits, weights):
    return abs(weights[scores > 0.5] @ (scores - hits)[scores > 0.5])

def largest_gap(probabilities, labels, weights):
    return float(np.abs(weights @ (probabilities - np.eye(probabilities.shape[1])[labels])).max())

TAIL_ERROR = Metric.of_function(tail_error, "tail error", kind="error", unit="percent", lowest=0.0)
LARGEST_GAP = Metric.of_function(largest_gap, about="rows", kind="error", lowest=0.0)
"""
CODE = """
import sys; sys.path.insert(0, {0!r})
from glayers.metrics import StreamingScorecard
StreamingScorecard.exact_entries = {1}
from glayers.cli import main; main()
"""


def run(folder: Path, *words: str, keep: int = 10**6, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program where packages in the folder are installed."""
    code = CODE.format(str(folder), keep)
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_the_metrics_of_an_installed_package_are_known(tmp_path: Path) -> None:
    (tmp_path / "outside_tails.py").write_text(PACKAGE)
    facts = tmp_path / "outside_tails-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-tails\nVersion: 1.0\n")
    names = "tail_error = outside_tails:TAIL_ERROR\nlargest_gap = outside_tails:LARGEST_GAP\n"
    (facts / "entry_points.txt").write_text(f"[glayers.metrics]\n{names}bad = outside_tails:tail_error\n")
    np.savez(tmp_path / "rows.npz", logits=np.log(P), labels=Y)
    confidence = P.max(axis=1)
    sure = confidence > 0.5
    tail = abs(np.sum((confidence - (P.argmax(axis=1) == Y))[sure])) / len(P)
    gap = np.abs(np.mean(P - np.eye(4)[Y], axis=0)).max()
    done = run(tmp_path, "score", "rows.npz", "--json", "--intervals", "--resamples", "20")
    assert (
        "outside_tails:tail_error of outside-tails is left out: BadPredictions: register takes a Metric" in done.stderr
    )
    numbers = json.loads(done.stdout)["all"]
    assert (numbers["tail_error"], numbers["largest_gap"]) == (pytest.approx(tail), pytest.approx(gap))
    assert numbers["intervals"]["tail_error"]["high"] >= tail
    (tmp_path / "both").mkdir()
    for part in (0, 1):
        np.savez(tmp_path / "both" / f"{part}.npz", logits=np.log(P[part::2]), labels=Y[part::2])
    done = run(tmp_path, "score", "both", "--json", keep=0)  # many files are streamed
    numbers = json.loads(done.stdout)["all"]
    assert numbers["tail_error"] == pytest.approx(tail)
    assert "largest_gap" not in numbers
    assert "largest_gap: left out, as the rows are too many to keep" in done.stderr
    run(tmp_path, "score", "rows.npz", "--fail-if", f"tail_error > {tail / 2:.3f}", status=3)
    assert "tail error" in run(tmp_path, "score", "rows.npz", "--all").stdout


@pytest.mark.parametrize("about", ["ranks", "classes"])
def test_a_value_per_row_is_of_one_event_or_of_the_rows(about: Any) -> None:
    def each(scores: Numbers, hits: Numbers) -> Numbers:
        return scores - hits

    with pytest.raises(BadPredictions, match=f"about 'event' or 'rows'; got '{about}'"):
        Metric.of_function(each, per_row=True, about=about, at_most=2)


def test_infinite_values_of_rows_keep_their_sign() -> None:
    def lowest_first(scores: Numbers, hits: Numbers) -> Numbers:
        return np.where(np.arange(len(scores)) == 0, -np.inf, scores)

    def both(scores: Numbers, hits: Numbers) -> Numbers:
        return np.where(np.arange(len(scores)) == 1, np.inf, lowest_first(scores, hits))

    register(Metric.of_function(lowest_first, per_row=True))
    assert scorecard(P, Y)["lowest_first"] == -np.inf
    weights = np.ones(len(Y))
    weights[0] = 0.0
    assert scorecard(P, Y, sample_weight=weights)["lowest_first"] == pytest.approx(P[1:].max(axis=1).mean())
    with pytest.raises(GlayersError, match="returns inf for some rows and -inf for others"):
        register(Metric.of_function(both, per_row=True))


def test_means_of_rows_stay_in_their_bounds() -> None:
    def below(scores: Numbers, hits: Numbers) -> Numbers:
        return scores - 2.0

    register(Metric.of_function(below, per_row=True, lowest=-0.5, highest=1.0))
    assert scorecard(P, Y)["below"] == -0.5
    streamed = StreamingScorecard("probabilities")
    streamed.update(P, Y)
    assert streamed.result(["below"])["below"] == -0.5


def test_a_function_of_all_classes_is_not_registered_as_one_of_events() -> None:
    def second(probabilities: Any, labels: Any, weights: Any) -> Any:
        return weights @ (np.argsort(probabilities, axis=1)[:, -2] == labels)

    with pytest.raises(BadPredictions, match=r'the metric second failed: AxisError.* pass about="rows"'):
        register(Metric.of_function(second))
    assert "second" not in METRICS
    register(Metric.of_function(second, about="rows"))
    del METRICS["second"]
    with pytest.raises(BadPredictions, match="a metric has no attribute 'foo'"):
        Metric.of_function(second, foo=3)
