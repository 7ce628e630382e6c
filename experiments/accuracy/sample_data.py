"""Fashion-MNIST images -> the logits in `glayers.datasets`, by a small convolutional network trained here.

The network has no regularisation (no augmentation, dropout, weight decay or early stopping), so that it becomes
overconfident, as real networks do. It is not trained on the calibration rows.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DEBIAN_IMAGES = Path("/usr/share/datasets/fashion-mnist")
PACKAGED_LOGITS = Path(__file__).parents[2] / "src" / "glayers" / "datasets" / "fashion_mnist.npz"
N_CALIBRATION = 5_000
BATCH = 250  # divides 55,000: every step sees a full batch
LEARNING_RATE = 1e-3
ROUNDING_ALLOWED = 1e-4  # the largest accepted change of the mean loss by storing logits as float16


def main() -> None:
    settings = read_settings()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of sums, and so the result, depends on the number of threads
    generator = torch.Generator().manual_seed(settings.seed)

    images = read_images(settings.images / "train-images-idx3-ubyte.gz")
    labels = read_labels(settings.images / "train-labels-idx1-ubyte.gz")
    order = torch.randperm(len(images), generator=generator)
    calibration, training = order[:N_CALIBRATION], order[N_CALIBRATION:]
    test_images = read_images(settings.images / "t10k-images-idx3-ubyte.gz")
    test_labels = read_labels(settings.images / "t10k-labels-idx1-ubyte.gz")

    network = new_network(generator)
    train(network, images[training], labels[training], settings.epochs, generator)
    logits_calibration = stored(logits_of(network, images[calibration]), labels[calibration], "calibration")
    logits_test = stored(logits_of(network, test_images), test_labels, "test")
    np.savez_compressed(
        settings.out,
        logits_calibration=logits_calibration,
        labels_calibration=labels[calibration].numpy().astype(np.uint8),
        logits_test=logits_test,
        labels_test=test_labels.numpy().astype(np.uint8),
        class_names=np.array(CLASS_NAMES),
    )
    print(f"wrote {settings.out.name}: {settings.out.stat().st_size:,} bytes")


def read_settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=Path, default=DEBIAN_IMAGES, help="folder of the four .gz files")
    parser.add_argument("--out", type=Path, default=PACKAGED_LOGITS, help="the .npz to write")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the batches")
    return parser.parse_args()


def read_images(path: Path) -> Tensor:
    """Return images (n, 1, 28, 28) scaled to 0..1; an IDX image file starts with 16 bytes of header."""
    pixels = np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=16)
    return torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255)


def read_labels(path: Path) -> Tensor:
    """Return labels (n,); an IDX label file starts with 8 bytes of header."""
    labels = np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=8)
    return torch.from_numpy(labels.astype(np.int64))


def new_network(generator: torch.Generator) -> nn.Sequential:
    """Two convolutions and two dense layers, about 207,000 weights drawn from the generator."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, len(CLASS_NAMES)),
    )
    for parameter in network.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(parameter)
    # Channels last: a third faster on one thread. torch's type stubs lack this argument of `to`.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def train(network: nn.Module, images: Tensor, labels: Tensor, epochs: int, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    n_rows = len(images)
    for epoch in range(1, epochs + 1):
        total_loss, total_correct = 0.0, 0
        for rows in torch.randperm(n_rows, generator=generator).view(-1, BATCH):
            logits = network(images[rows])
            loss = cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            total_loss += loss.item() * BATCH
            total_correct += int((logits.argmax(dim=1) == labels[rows]).sum())
        loss_and_accuracy = f"loss {total_loss / n_rows:.4f}, accuracy {total_correct / n_rows:.4f}"
        print(f"epoch {epoch:2}: {loss_and_accuracy}", flush=True)


@torch.no_grad()
def logits_of(network: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([network(batch) for batch in images.view(-1, 1_000, 1, 28, 28)])


def stored(logits: Tensor, labels: Tensor, part: str) -> NDArray[np.float16]:
    """Return the logits as float16 and print their scores; stop if rounding changes the loss."""
    rounded = logits.half()
    exact_nll = cross_entropy(logits.double(), labels).item()
    nll = cross_entropy(rounded.double(), labels).item()
    if abs(nll - exact_nll) >= ROUNDING_ALLOWED:
        raise SystemExit(f"{part}: float16 moves the loss from {exact_nll:.6f} to {nll:.6f}; store float32")
    confidence, predicted = rounded.double().softmax(dim=1).max(dim=1)
    accuracy = (predicted == labels).double().mean().item()
    print(f"{part}: n {len(labels):,}, accuracy {accuracy:.4f}, mean confidence {confidence.mean():.4f}")
    print(f"{part}: NLL {nll:.4f}, moved by {abs(nll - exact_nll):.1e} in rounding to float16")
    result: NDArray[np.float16] = rounded.numpy()
    return result


if __name__ == "__main__":
    main()
