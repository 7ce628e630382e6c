"""A folder of published logits -> both parts of each file, as large as the paper says they are."""

import re
from pathlib import Path
from typing import NamedTuple

from experiments.logit_files import read_both
from experiments.paper.convert_pickles import read_pickle

from glayers import BadFile, Predictions


class Source(NamedTuple):
    """A file of the collection, and the network and data of its logits."""

    dataset: str
    network: str
    file: str


class Shape(NamedTuple):
    """How large both parts of a data set are in the paper."""

    calibration_rows: int
    test_rows: int
    classes: int


SHAPES = {
    "CIFAR-10": Shape(5_000, 10_000, 10),
    "SVHN": Shape(6_000, 26_032, 10),
    "CIFAR-100": Shape(5_000, 10_000, 100),
    "ImageNet": Shape(25_000, 25_000, 1_000),
}
SOURCES = (
    Source("CIFAR-10", "ResNet 110", "probs_resnet110_c10_logits"),
    Source("CIFAR-10", "ResNet 110 SD", "probs_resnet110_SD_c10_logits"),
    Source("CIFAR-10", "Wide ResNet 32", "probs_resnet_wide32_c10_logits"),
    Source("CIFAR-10", "DenseNet 40", "probs_densenet40_c10_logits"),
    Source("SVHN", "ResNet 152 SD", "probs_resnet152_SD_SVHN_logits"),
    Source("CIFAR-100", "ResNet 110", "probs_resnet110_c100_logits"),
    Source("CIFAR-100", "ResNet 110 SD", "probs_resnet110_SD_c100_logits"),
    Source("CIFAR-100", "Wide ResNet 32", "probs_resnet_wide32_c100_logits"),
    Source("CIFAR-100", "DenseNet 40", "probs_densenet40_c100_logits"),
    Source("ImageNet", "ResNet 152", "probs_resnet152_imgnet_logits"),
    Source("ImageNet", "DenseNet 161", "probs_densenet161_imgnet_logits"),
)


def find(folder: Path, source: Source) -> Path | None:
    """Return the file by its published name, or by ours: cifar10_densenet40_paper.npz."""
    ours = re.sub(r"[^a-z0-9_]", "", f"{source.dataset}_{source.network}_paper".lower())
    names = [f"{source.file}.p", f"{source.file}.npz", f"{ours}.npz"]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_checked(file: Path, dataset: str, any_rows: bool) -> tuple[Predictions, Predictions]:
    """Read both parts; refuse a file that is not as large as the paper says."""
    calibration, test = read_pickle(file).values() if file.suffix == ".p" else read_both(file)
    expected = SHAPES[dataset]
    came = Shape(len(calibration), len(test), test.n_classes)
    if calibration.n_classes != came.classes or came.classes != expected.classes:
        raise BadFile(
            f"{file}: {dataset} has {expected.classes} classes; this file has {calibration.n_classes} for calibration "
            f"and {came.classes} for test. Is it the file of another data set?"
        )
    if came != expected and not any_rows:
        raise BadFile(
            f"{file}: {dataset} has {expected.calibration_rows:,} calibration and {expected.test_rows:,} test rows in "
            f"the paper; this file has {came.calibration_rows:,} and {came.test_rows:,}. Get the whole file, or pass "
            f"--any-rows and another --results"
        )
    return calibration, test
