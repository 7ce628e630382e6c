"""The sample data -> g-layers through training, from the transparent and from Glorot's start: results/starts.csv.

The paper's recipe at three layers, on the packaged logits of Fashion-MNIST. A point is the network of least training
loss up to that epoch, which is what early stopping would return. A minute or two on one thread.
"""

import csv
import itertools
import warnings
from pathlib import Path
from typing import Literal

from glayers import GLayers, GlayersWarning
from glayers.datasets import load_fashion_mnist
from glayers.metrics.scorecard import score_checked_logits

RESULTS = Path(__file__).parent / "results" / "starts.csv"
STARTS: tuple[Literal["transparent", "glorot"], ...] = ("transparent", "glorot")
EPOCHS = (0, 1, 2, 4, 7, 10, 15, 20, 30, 40)
SEEDS = range(3)


def main() -> None:
    parts = load_fashion_mnist()
    rows: list[dict[str, object]] = []
    for start, seed, epochs in itertools.product(STARTS, SEEDS, EPOCHS):
        g = GLayers(
            recipe="paper",
            start=start,
            learning_rate=3e-3,
            weight_decay=1e-2,
            max_epochs=epochs,
            patience=max(EPOCHS),
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # zero epochs lower no loss
            g.fit(parts.calibration.logits, parts.calibration.labels)
        for name, part in zip(("calibration", "test"), parts, strict=True):
            card = score_checked_logits(g.transform(part.logits), part.labels, None)
            rows.append(
                {
                    "start": start,
                    "set": name,
                    "seed": seed,
                    "percent": f"{100 * epochs / max(EPOCHS):g}",
                    "nll": f"{card.nll:.5f}",
                    "ks": f"{100 * card.ks:.4f}",
                    "accuracy": f"{100 * card.accuracy:.3f}",
                }
            )
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
