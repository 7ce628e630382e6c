"""What terminal and page say of a model agrees with its tests, and tables with its numbers."""

from dataclasses import replace

import pytest

from glayers import metrics
from glayers.cli.arguments import show
from glayers.metrics import OmnibusTest, Scorecard, calibration_test
from glayers.report.verdict import ks_sentence, verdict
from glayers.text_tables import aligned_table, p_text
from tests.metrics.simulation import sample
from tests.strategies import make_case


def card(confidence: float, accuracy: float) -> Scorecard:
    p, y, _ = make_case(0, 20, 3)
    given = metrics.scorecard(p, y)
    return replace(given, by_name={**given, "confidence": confidence, "accuracy": accuracy})


@pytest.fixture(scope="module")
def rejecting() -> OmnibusTest:
    found = calibration_test(*sample(3, n=2000, k=4, sharpness=2.5), n_resamples=199)
    assert "ks" in found.rejecting
    return found


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (0.07, "overconfident by 7.0 points"),
        (-0.07, "underconfident by 7.0 points"),
        (0.0, "right on average, but over- or underconfident at some confidence levels"),
    ],
)
def test_the_direction_is_that_of_the_mean_gap_beyond_the_bound_of_the_test(
    rejecting: OmnibusTest, gap: float, said: str
) -> None:
    assert rejecting.tests["ks"].bound < 0.07
    assert verdict(rejecting, card(0.8 + gap, 0.8)).sentence == f"the model is {said}"
    # A model that says 30 % of an event is not sure of it.
    of_event = replace(rejecting, event="positive class ill")
    words = said.replace("overconfident by 7.0 points", "7.0 points too high on average")
    words = words.replace("underconfident by 7.0 points", "7.0 points too low on average")
    words = words.replace("over- or underconfident at some confidence levels", "too high or too low at some values")
    said_of_event = verdict(of_event, card(0.3 + gap, 0.3)).sentence
    assert said_of_event == f"the probability of positive class ill is {words}"


@pytest.mark.parametrize("gap", [-0.1, 0.0, 0.1])
def test_a_model_that_passes_its_tests_is_never_called_overconfident(gap: float) -> None:
    found = calibration_test(*sample(3, n=2000, k=4), n_resamples=199)
    assert not found.rejected
    assert "confident" not in verdict(found, card(0.8 + gap, 0.8)).sentence


def test_calibrated_models_contradict_themselves_in_no_sample() -> None:
    for seed in range(30):
        rows = sample(seed, n=300, k=4)
        found = calibration_test(*rows, n_resamples=199)
        said = verdict(found, metrics.scorecard(*rows)).sentence
        assert ("confident by" in said or "at some" in said) == bool({"ks", "ece"} & set(found.rejecting))


def test_ks_is_named_with_what_chance_alone_would_make_of_it() -> None:
    test = metrics.ks_test(*sample(1, n=500, k=4))
    expected = (
        f"KS {100 * test.value:.2f} %; a calibrated model would exceed {100 * test.bound:.2f} % in 5 % of samples"
    )
    assert ks_sentence(test) == expected
    assert ks_sentence(replace(test, too_few_groups=True)).endswith(
        "too few groups to tell whether this is sampling error"
    )


def test_a_table_has_its_numbers_on_the_right_and_no_markup_of_strangers(capsys: pytest.CaptureFixture[str]) -> None:
    show(*aligned_table([["", "NLL"], ["[red]mine", "0.5  "], ["other", "10.25 *"]]).splitlines())
    assert capsys.readouterr().out.splitlines() == [
        "               NLL",
        "[red]mine    0.5",
        "other      10.25 *",
    ]


def test_no_p_value_is_zero_and_one_from_draws_stops_at_their_floor() -> None:
    assert (p_text(0.0), p_text(1e-300)) == ("p < 0.0001", "p < 0.0001")
    # The least p-value of 999 draws is 1 / 1000, and the true one may be lower.
    assert (p_text(0.0, 999), p_text(0.001, 999), p_text(0.002, 999)) == ("p <= 0.001", "p <= 0.001", "p = 0.002")
