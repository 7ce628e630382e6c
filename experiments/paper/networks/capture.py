"""A plan and images -> files of logits: trains one network, and keeps its logits of held-out rows along the way."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from experiments.paper.networks.captured import Logits, pack
from experiments.paper.networks.images import Sizes, Split
from experiments.paper.networks.models import multiply_adds, new_network
from experiments.paper.networks.training import Recipe, Scale, logits_of, one_thread, train

from glayers import Predictions, metrics
from glayers.files import write_whole

KEPT = (1, 2, 5, 10)  # epochs; also kept are the last and the one with the lowest calibration loss


class Run(NamedTuple):
    """One network: its name, shape, data and training settings."""

    name: str
    dataset: str
    shape: str
    recipe: Recipe
    sizes: Sizes

    def settings(self) -> dict[str, Any]:
        """Everything that determines the logits."""
        return {
            "dataset": self.dataset,
            "shape": self.shape,
            "recipe": asdict(self.recipe),
            "rows": self.sizes._asdict(),
        }


def train_and_capture(run: Run, parts: Split, out: Path) -> None:
    """Train a network. Its .npz is complete after every epoch that is kept; its .json marks the end of training."""
    generator = torch.Generator().manual_seed(run.recipe.random_state)
    labels = {"calibration": parts.calibration.labels, "test": parts.test.labels}
    fixed = {*KEPT, run.recipe.epochs}
    kept: dict[int, dict[str, Logits]] = {}
    history: list[dict[str, float]] = []
    least, early = np.inf, 0
    began = time.process_time()
    with one_thread():
        scale = Scale.of(parts.training)
        _, height, width, n_colours = parts.training.pixels.shape
        network = new_network(run.shape, n_colours, generator)
        for epoch in train(network, parts.training, scale, run.recipe, generator):
            calibration = Predictions(logits_of(network, parts.calibration, scale), labels["calibration"])
            loss = metrics.nll(calibration)
            accuracy = metrics.accuracy(calibration.probabilities(), calibration.labels)
            history.append(asdict(epoch) | {"calibration_nll": loss, "calibration_accuracy": accuracy})
            print(
                f"{run.name}: epoch {epoch.number} of {run.recipe.epochs}, training loss {epoch.training_loss:.4f}, "
                f"calibration loss {loss:.4f}, accuracy {accuracy:.4f}, {epoch.seconds:.0f} s",
                flush=True,
            )
            if loss < least:
                least, early = loss, epoch.number
            if epoch.number in fixed | {early}:
                kept = {number: logits for number, logits in kept.items() if number in fixed | {early}}
                kept[epoch.number] = {"calibration": calibration.logits, "test": logits_of(network, parts.test, scale)}
                write_whole(out / f"{run.name}.npz", pack(labels, kept))
        about = run.settings() | {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "multiply_adds": multiply_adds(network, (n_colours, height, width)),
            "processor_seconds": time.process_time() - began,
            "early_stopping_epoch": early,
            "epochs": history,
        }
    write_whole(out / f"{run.name}.json", (json.dumps(about, indent=1) + "\n").encode())
