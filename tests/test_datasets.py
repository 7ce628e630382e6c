"""The packaged logits are what their README says: held out, of every class, and overconfident."""

from importlib.resources import files

import numpy as np
import pytest

from glayers.datasets import CalibrationAndTest, load_fashion_mnist
from glayers.predictions import Predictions


@pytest.fixture(scope="module")
def fashion() -> CalibrationAndTest:
    return load_fashion_mnist()


@pytest.fixture(params=["calibration", "test"])
def part(request: pytest.FixtureRequest, fashion: CalibrationAndTest) -> Predictions:
    chosen: Predictions = getattr(fashion, request.param)
    return chosen


def accuracy(predictions: Predictions) -> float:
    return float((predictions.logits.argmax(axis=1) == predictions.labels).mean())


def test_there_are_5000_rows_to_calibrate_and_10000_to_test(fashion: CalibrationAndTest) -> None:
    assert fashion.calibration.logits.shape == (5_000, 10)
    assert fashion.test.logits.shape == (10_000, 10)


def test_logits_come_as_float32(part: Predictions) -> None:
    assert part.logits.dtype == np.float32


def test_both_parts_name_the_classes_in_the_order_of_the_labels(part: Predictions) -> None:
    assert part.class_names is not None
    # The order of the table in Fashion-MNIST's own README.
    assert part.class_names[:3] == ("T-shirt/top", "Trouser", "Pullover")
    assert part.class_names[9] == "Ankle boot"


def test_every_class_is_seen_often_enough_to_calibrate(part: Predictions) -> None:
    assert part.label_counts().min() >= 400


def test_the_test_part_is_the_whole_balanced_test_set_in_its_own_order(fashion: CalibrationAndTest) -> None:
    assert fashion.test.label_counts().tolist() == [1_000] * 10
    # The first ten labels of t10k-labels-idx1-ubyte.
    assert fashion.test.labels[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]


def test_the_network_learned_and_is_overconfident_by_several_points(part: Predictions) -> None:
    confidence = float(part.probabilities().max(axis=1).mean())
    assert 0.90 < accuracy(part) < 0.93
    assert confidence - accuracy(part) > 0.03


def test_calibration_rows_were_held_out_of_training(fashion: CalibrationAndTest) -> None:
    # Rows the network trained on come out about 99 % accurate; unseen rows of both parts alike.
    # Binomial standard error of the difference: sqrt(0.91 * 0.09 * (1 / 5000 + 1 / 10000)) = 0.005.
    assert abs(accuracy(fashion.calibration) - accuracy(fashion.test)) < 0.02


def test_no_row_is_in_both_parts(fashion: CalibrationAndTest) -> None:
    calibration = {row.tobytes() for row in fashion.calibration.logits}
    assert calibration.isdisjoint(row.tobytes() for row in fashion.test.logits)


def test_the_packaged_file_stays_small() -> None:
    assert len((files("glayers.datasets") / "fashion_mnist.npz").read_bytes()) < 1_000_000
