"""Published logits -> their published calibration errors, recomputed; exits with 1 where one differs.

It also checks that transparent layers leave the logits of every set in DIR unchanged.

DIR holds `cifar10_densenet40_paper.npz` (logits_test, y_test) and `top1/*.npz` (confidence, y_pred, y_true).
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from glayers import Confidences, metrics, read_predictions
from glayers.maps import dense_layers

# In percent. The paper prints 4.751, 18.481 and 21.157 for three of these, a difference of rounding.
TOP_1_KS = {
    "cifar10_resnet110": 4.750,
    "cifar10_densenet40": 5.493,
    "cifar100_resnet110": 18.480,
    "cifar100_densenet40": 21.156,
}
DENSENET_40 = {
    "accuracy": 92.42,
    "KS": 5.493,
    "ECE": 5.500,
    "Brier": 1.274,
    "mean KS, ranks 1 to 5": 2.168,
    "mean KS, ranks 1 to 9": 1.234,
    "mean KS, ranks 1 to 10": 1.111,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().logits
    expected = {f"KS of {name}": value for name, value in TOP_1_KS.items()} | DENSENET_40
    found = top_1_errors(folder) | densenet_40(folder)
    differs = {name for name, value in expected.items() if round(found[name], 3) != round(value, 3)}
    for name, value in expected.items():
        print(f"{name:<28} {value:8.3f} published {found[name]:8.3f} ours {'DIFFERS' if name in differs else ''}")
    moved = [file.stem for file in sorted(folder.glob("*.npz")) if not starts_transparent(file)]
    print(f"accuracy at the transparent start differs from the network's on: {', '.join(moved) or 'no set'}")
    return int(bool(differs or moved))


def starts_transparent(file: Path) -> bool:
    """Whether layers of every depth and width leave the test logits unchanged to the last bit."""
    logits = read_predictions(file, part="test").logits
    chains = (dense_layers(logits.shape[1], depth, units) for depth in (1, 2, 4) for units in (2, 3))
    return all(
        np.array_equal(chain.map_parameters(lambda value: value.astype(logits.dtype))(logits), logits)
        for chain in chains
    )


def top_1_errors(folder: Path) -> dict[str, float]:
    errors = {}
    for name in TOP_1_KS:
        rows = np.load(folder / "top1" / f"{name}.npz", allow_pickle=False)
        errors[f"KS of {name}"] = 100 * metrics.ks(Confidences(rows["confidence"], rows["y_true"] == rows["y_pred"]))
    return errors


def densenet_40(folder: Path) -> dict[str, float]:
    test = read_predictions(folder / "cifar10_densenet40_paper.npz", part="test")
    p, y = test.probabilities(), test.labels
    return {
        "accuracy": 100 * metrics.accuracy(p, y),
        "KS": 100 * metrics.ks(p, y),
        "ECE": 100 * metrics.ece(p, y),
        "Brier": 100 * metrics.brier(p, y),
        **{f"mean KS, ranks 1 to {r}": 100 * metrics.mean_top_ks(p, y, n_ranks=r) for r in (5, 9, 10)},
    }


if __name__ == "__main__":
    sys.exit(main())
