"""Pickles of the NN_calibration collection -> .npz files with logits_val, y_val, logits_test and y_test.

A pickle is a program that can run any code. This reader lets it call only the few functions of NumPy that rebuild an
array of numbers: `find_class` refuses every other name.
"""

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from glayers import BadFile, Predictions

ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that finds what arrays need, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle asks for, if arrays need it."""
        old_module = module.replace("numpy._core", "numpy.core")  # renamed by NumPy 2
        if (old_module, name) not in ALLOWED:
            raise BadFile(f"asks for {module}.{name}, which arrays of numbers never need")
        return super().find_class(old_module.replace("numpy.core", "numpy._core"), name)


def read_pickle(path: Path) -> dict[str, Predictions]:
    """Read both parts of a file of the collection."""
    try:
        with path.open("rb") as stream:
            (z_val, y_val), (z_test, y_test) = ArrayUnpickler(stream, encoding="latin-1").load()
        return {"calibration": Predictions(z_val, y_val), "test": Predictions(z_test, y_test)}
    except Exception as error:  # damaged bytes raise almost anything
        raise BadFile(f"{path}: is no pickle of ((logits_val, y_val), (logits_test, y_test)): {error}") from error


def main() -> None:
    """Write an .npz file beside each pickle of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for path in sorted(parser.parse_args().folder.glob("*.p")):
        calibration, test = read_pickle(path).values()
        arrays: dict[str, Any] = {"logits_val": calibration.logits, "y_val": calibration.labels}
        arrays |= {"logits_test": test.logits, "y_test": test.labels}
        np.savez(path.with_suffix(".npz"), **arrays)
        print(f"wrote {path.with_suffix('.npz')}")


if __name__ == "__main__":
    main()
