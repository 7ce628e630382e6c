"""Clones of public repositories -> the sets of logits in our tables, as `.npz` files that `make table-methods` reads.

    python -m experiments.accuracy.prepare_logits --clones CLONES --logits DIR

CLONES holds the clones by the names of their repositories, such as CLONES/wasscal. A set whose clone is missing is left
out. The checksum of each set is compared with the one in sets_of_logits.csv. docs/project/data.md says where the
repositories are and what was tested.
"""

import argparse
import csv
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from experiments.logit_files import checksum
from experiments.paper.convert_pickles import ArrayUnpickler, read_pickle

from glayers import BadFile, Predictions
from glayers.arrays import Array

Parts: TypeAlias = tuple[Predictions, Predictions]  # calibration and test rows
Reader: TypeAlias = Callable[[Path], Iterator[tuple[str, Parts]]]  # a clone -> what may be the set, by its name
ABOUT = Path(__file__).parent / "sets_of_logits.csv"
LETTERS = "ABCDEF"  # of the options; the last two are "I don't know" and "None of the above"
LEAST = 1e-5  # added to the published probabilities, of which some are 0


def parts_of(z_val: Array, y_val: Array, z_test: Array, y_test: Array) -> Parts:
    """Return both parts, as float32 and int64."""
    calibration = Predictions(np.asarray(z_val, np.float32), np.asarray(y_val).reshape(-1).astype(np.int64))
    test = Predictions(np.asarray(z_test, np.float32), np.asarray(y_test).reshape(-1).astype(np.int64))
    return calibration, test


def halved(logits: Array, labels: Array) -> Parts:
    """Return the first and the second half of the rows in a random order."""
    order = np.random.default_rng(0).permutation(len(labels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    labels = np.asarray(labels).reshape(-1)
    return parts_of(logits[first], labels[first], logits[second], labels[second])


def unpickled(path: Path) -> Any:
    """Return arrays, lists and text of a pickle, which may name nothing else."""
    with path.open("rb") as stream:
        try:
            return ArrayUnpickler(stream, encoding="latin-1").load()
        except (pickle.UnpicklingError, EOFError) as error:
            raise BadFile(f"{path}: is no pickle; if it is a Git LFS pointer, run `git lfs pull`: {error}") from error


def published_parts(*names: str) -> Reader:
    """Read pickles of ((logits, labels), (logits, labels)), the format of the NN_calibration collection."""

    def read(clone: Path) -> Iterator[tuple[str, Parts]]:
        for name in names:
            calibration, test = read_pickle(clone / name).values()
            yield name, parts_of(calibration.logits, calibration.labels, test.logits, test.labels)

    return read


def folder_of_arrays(name: str) -> Reader:
    """Read a folder with val_logits, val_labels, test_logits and test_labels, each as .npy or as text."""

    def read_array(folder: Path, stem: str) -> Array:
        if (folder / f"{stem}.npy").exists():
            return np.load(folder / f"{stem}.npy", allow_pickle=False)
        return np.loadtxt(folder / stem)

    def read(clone: Path) -> Iterator[tuple[str, Parts]]:
        folder = clone / "data" / name
        names = ("val_logits", "val_labels", "test_logits", "test_labels")
        yield name, parts_of(*(read_array(folder, stem) for stem in names))

    return read


def logits_and_labels(name: str) -> Reader:
    """Read a pickle of (logits, labels), and halve its rows."""

    def read(clone: Path) -> Iterator[tuple[str, Parts]]:
        logits, labels = unpickled(clone / "data" / name)[:2]
        yield name, halved(np.asarray(logits), np.asarray(labels))

    return read


def answers_of_llama(clone: Path) -> Iterator[tuple[str, Parts]]:
    """Read logits of the options by question, and the answers of another file; prompts and demonstrations differ."""
    questions = json.loads((clone / "data" / "emotion_10k_4.json").read_text(encoding="utf-8"))
    answer_of = {question["id"]: LETTERS.index(question["answer"]) for question in questions}
    for prompt, shots in product(("base", "shared", "task"), ("icl0", "icl1")):
        name = f"Llama-2-13b-hf_emotion_10k_4_{prompt}_{shots}.pkl"
        outputs = unpickled(clone / "outputs_base" / name)
        logits = np.stack([output["logits_options"] for output in outputs])
        yield name, halved(logits, np.array([answer_of[output["id"]] for output in outputs]))


def answers_of_qwen(clone: Path) -> Iterator[tuple[str, Parts]]:
    """Read questions with their logits and answers."""
    for name in ("Qwen-VL", "Qwen-VL-Chat"):
        outputs = unpickled(clone / "output" / name / "mmbench.pkl")
        logits = np.stack([np.asarray(output["logits"]).reshape(-1) for output in outputs])
        yield name, halved(logits, np.array([LETTERS.index(output["answer"]) for output in outputs]))


def reviews(clone: Path) -> Iterator[tuple[str, Parts]]:
    """Read cross-validated probabilities and labels."""
    name = "imdb_test_set_pyx.npy"
    probabilities = np.load(clone / "cross_validated_predicted_probabilities" / name, allow_pickle=False)
    labels = np.load(clone / "original_test_labels" / "imdb_test_set_original_labels.npy", allow_pickle=False)
    yield name, halved(np.log(np.minimum(probabilities + LEAST, 1.0)), labels)


FOCAL, CIFAR = "df-posthoc-calibration", "wasscal"
# The clone of each set, and how to read it. Where the source does not say which of several files it is, all are tried.
SETS: Mapping[str, tuple[str, Reader]] = {
    "cifar10_densenet40_paper": ("NN_calibration", published_parts("logits/probs_densenet40_c10_logits.p")),
    "cifar10_resnet110": (FOCAL, folder_of_arrays("cifar10_resnet110")),
    "cifar10_resnet50_focal": (FOCAL, folder_of_arrays("cifar10_resnet50")),
    "cifar100_resnet110": (FOCAL, folder_of_arrays("cifar100_resnet110")),
    "cifar100_densenet121": (FOCAL, folder_of_arrays("cifar100_densenet121")),
    "cifar10_longtail_resnet110": (
        "SCTL",
        published_parts("datasets/probs_resnet110_c10_LT_logits.p", "datasets/probs_resnet110_SD_c10_LT_logits.p"),
    ),
    "cifar10_resnet20": (CIFAR, logits_and_labels("logits_c10resnet20_pretrainedcy.p")),
    "cifar100_resnet20": (CIFAR, logits_and_labels("logits_cifar100_resnet20_pretrainedcy.p")),
    "cifar100_vgg16": (CIFAR, logits_and_labels("pretrained_logits/logits_cifar100_vgg16_bn_pretrainedcy.p")),
    "emotion6_llama2_13b": ("LLM-Uncertainty-Bench", answers_of_llama),
    "mmbench6_qwen_vl": ("VLM-Uncertainty-Bench", answers_of_qwen),
    "imdb2_text": ("label-errors", reviews),
}


def prepare(name: str, clones: Path, expected: str) -> tuple[Parts | None, str]:
    """Return the rows of a set if they are those of our tables, or the last ones read, and what to say."""
    repository, read = SETS[name]
    clone = clones / repository
    if not clone.is_dir():
        return None, f"left out: there is no clone {clone}"
    parts = None
    try:
        for file, parts in read(clone):
            if checksum(parts) == expected:
                return parts, f"equal to the set of our tables, from {file}"
    except (BadFile, OSError, ValueError, KeyError, TypeError) as error:
        return None, f"left out: cannot be read ({error})"
    return parts, "DIFFERS from the set of our tables: its checksum is another one"


def main() -> int:
    """Write every set whose clone is there, and return 1 if one differs from ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    options.logits.mkdir(exist_ok=True)
    with ABOUT.open(encoding="utf-8", newline="") as file:
        expected = {about["set"]: about["sha256"] for about in csv.DictReader(file)}
    differs = False
    for name in SETS:
        parts, said = prepare(name, options.clones, expected[name])
        print(f"{name}: {said}")
        if parts is not None:
            differs |= checksum(parts) != expected[name]
            val, test = parts
            arrays: dict[str, Any] = {
                "logits_val": val.logits,
                "y_val": val.labels,
                "logits_test": test.logits,
                "y_test": test.labels,
            }
            np.savez_compressed(options.logits / f"{name}.npz", **arrays)
    return int(differs)


if __name__ == "__main__":
    raise SystemExit(main())
