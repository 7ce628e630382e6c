"""Captured logits -> `Predictions` of each network after each epoch that was kept; needs neither torch nor images.

NAME.npz holds labels, and logits as whole multiples of 1/32. Finer steps are not worth storing: rounding changes the
loss by less than 0.001. NAME.json says how the network was trained. It is written last, so a network without it is
unfinished.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glayers import BadFile, Predictions
from glayers.datasets import CalibrationAndTest

FOLDER = Path(__file__).parents[2] / "data" / "base_networks"
STEPS = 32  # stored steps per unit of a logit
PARTS = ("calibration", "test")

Logits = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Network:
    """A network's logits after some epochs of training, by epoch, and the facts about its training."""

    name: str
    checkpoints: dict[str, CalibrationAndTest]
    about: dict[str, Any]

    @property
    def early_stopping(self) -> str:
        """The epoch with the lowest loss on the calibration rows."""
        return str(self.about["early_stopping_epoch"])

    @property
    def last(self) -> str:
        """The end of training."""
        return max(self.checkpoints, key=int)


def load_networks(folder: Path = FOLDER) -> dict[str, Network]:
    """Read every finished network in a folder, by name.

    >>> from experiments.paper.networks.captured import load_networks
    >>> networks = load_networks()
    >>> calibration, test = networks["cifar10_residual"].checkpoints["5"]
    """
    return {about.stem: load_network(folder, about.stem) for about in sorted(folder.glob("*.json"))}


def load_network(folder: Path, name: str) -> Network:
    return Network(name, unpack((folder / f"{name}.npz").read_bytes()), read_about(folder, name))


def is_finished(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").is_file()


def read_about(folder: Path, name: str) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return about


def pack(labels: Mapping[str, Labels], checkpoints: Mapping[int, Mapping[str, Logits]]) -> bytes:
    """Return the bytes of an .npz file, the same for the same logits: its members have a fixed date."""
    arrays: dict[str, NDArray[Any]] = {f"labels_{part}": labels[part].astype(np.uint8) for part in PARTS}
    for epoch, logits in checkpoints.items():
        arrays |= {f"logits_{part}_{epoch}": rounded(logits[part]) for part in PARTS}
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            described = zipfile.ZipInfo(f"{name}.npy")  # dated 1980 by default
            described.compress_type = zipfile.ZIP_BZIP2  # a fifth smaller than deflate
            with archive.open(described, "w") as member:
                np.lib.format.write_array(member, array)
    return stream.getvalue()


def unpack(data: bytes) -> dict[str, CalibrationAndTest]:
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        epochs = [name.removeprefix("logits_test_") for name in stored.files if name.startswith("logits_test_")]
        return {
            epoch: CalibrationAndTest(
                *(
                    Predictions(
                        logits=stored[f"logits_{part}_{epoch}"].astype(np.float32) / STEPS,
                        labels=stored[f"labels_{part}"],
                    )
                    for part in PARTS
                )
            )
            for epoch in epochs
        }


def rounded(logits: Logits) -> NDArray[np.int16]:
    """Return logits in whole steps.

    >>> rounded(np.array([[1.0, -0.51, 0.02]], dtype=np.float32)).tolist()
    [[32, -16, 1]]
    """
    steps = np.rint(logits * STEPS)
    largest = float(np.abs(steps).max())
    if not largest <= np.iinfo(np.int16).max:  # also false for NaN
        raise BadFile(f"logits must lie within 1,023 of zero; found {largest / STEPS}. Lower the learning rate")
    return steps.astype(np.int16)
