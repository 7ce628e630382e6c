"""A new network and images -> the network after each epoch: stochastic gradient descent on one thread.

Images are mirrored at random and not changed otherwise. Cropping them too would gain a little accuracy, but remove the
overconfidence of networks trained for longer, which we want to calibrate.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from experiments.paper.networks.images import Images
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Recipe:
    """Settings of a training run; the learning rate climbs for a quarter of the steps, then falls to zero."""

    epochs: int = 15
    batch: int = 128
    peak_learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    random_state: int = 0


@dataclass(frozen=True)
class Epoch:
    """The result of an epoch of training; loss and accuracy are means over its batches during training."""

    number: int
    training_loss: float
    training_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each colour over the training rows: pixels -> the input of a network."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, images: Images) -> "Scale":
        """Measure the colours of the images that a network trains on."""
        # Sums of whole numbers: exact, and no copy of all pixels as floats.
        values = images.pixels.reshape(-1, images.pixels.shape[3])
        counts = np.stack([np.bincount(colour, minlength=256) for colour in values.T])
        mean = counts @ np.arange(256) / len(values)
        variance = counts @ np.arange(256) ** 2 / len(values) - mean**2
        return cls(torch.tensor(mean).float(), torch.tensor(np.sqrt(variance)).float())

    def __call__(self, pixels: Tensor) -> Tensor:
        """(n, height, width, colours) -> (n, colours, height, width), which in memory is the same order."""
        return ((pixels.float() - self.mean) / self.deviation).permute(0, 3, 1, 2)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, then restore their number: the order of sums, and so every bit, depends on it."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def train(
    network: nn.Module, images: Images, scale: Scale, recipe: Recipe, generator: torch.Generator
) -> Iterator[Epoch]:
    """Train one epoch per step of the iterator; an incomplete last batch is left out."""
    pixels, labels = torch.from_numpy(images.pixels), torch.from_numpy(images.labels)
    n_batches = len(labels) // recipe.batch
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=recipe.peak_learning_rate,
        momentum=recipe.momentum,
        nesterov=True,
        weight_decay=recipe.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=recipe.peak_learning_rate,
        total_steps=recipe.epochs * n_batches,
        pct_start=0.25,
        cycle_momentum=False,
    )
    for number in range(1, recipe.epochs + 1):
        began = time.perf_counter()
        network.train()
        order = torch.randperm(len(labels), generator=generator)[: n_batches * recipe.batch]
        loss_sum, n_correct = 0.0, 0
        for rows in order.view(n_batches, recipe.batch):
            logits = network(mirrored(scale(pixels[rows]), generator))
            loss = cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            loss_sum += loss.item()
            n_correct += int((logits.argmax(dim=1) == labels[rows]).sum())
        yield Epoch(number, loss_sum / n_batches, n_correct / len(order), time.perf_counter() - began)


def mirrored(images: Tensor, generator: torch.Generator) -> Tensor:
    """Swap left and right in half of the images."""
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


@torch.no_grad()
def logits_of(network: nn.Module, images: Images, scale: Scale) -> NDArray[np.float32]:
    """Return the logits of unchanged images."""
    network.eval()
    pixels = torch.from_numpy(images.pixels)
    batches = [pixels[start : start + 500] for start in range(0, len(pixels), 500)]
    logits: NDArray[np.float32] = torch.cat([network(scale(batch)) for batch in batches]).numpy()
    return logits
