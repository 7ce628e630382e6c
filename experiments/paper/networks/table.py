"""Captured networks -> the README of their folder: how each was trained, and its scores after each kept epoch."""

from collections.abc import Mapping

from experiments.paper.networks.captured import Network

from glayers import metrics

COMMAND = "python -m experiments.paper.networks.command --cifar10 DIR"
SHOWN = "accuracy, percent | NLL | KS, percent"

INTRODUCTION = f"""# Base networks

Logits of small networks trained here from images, made with this page by `make base-networks`, which runs
`{COMMAND}`.
`experiments.paper.networks.captured.load_networks()` reads them; softmax is in none of them.

- **Rows.** 45,000 to train on, 5,000 to calibrate on, 10,000 to test on. The test part is the official one. Calibration
  rows were drawn from the official training part by a seed and never trained on; Fashion-MNIST's has 60,000 rows, of
  which 10,000 are left out. Networks of one data set share their rows.
- **Training.** Stochastic gradient descent with Nesterov momentum and weight decay, one cycle of the learning rate,
  images mirrored at random. Nothing was chosen by looking at test rows.
- **Early stopping** takes the epoch with the least loss on the calibration rows, of all epochs. These rows are then no
  longer untouched: a calibrator fitted on them sees a network that was picked because it does well on them.
- **After a few epochs** a network is partially trained, on its way with a high learning rate; it is not the network
  that a shorter training would have given.
- **Files.** NAME.npz holds labels, and logits in steps of 1/32; NAME.json the settings, and the losses and seconds of
  every epoch. The same seed gives the same .npz on the same processor and version of torch.
"""


def as_markdown(networks: Mapping[str, Network]) -> str:
    """Return the page: one table of networks at their last epoch, one of all checkpoints."""
    lines = [
        INTRODUCTION,
        "## Networks, after the last epoch, on test rows",
        "",
        f"| network | parameters | multiply-adds, million | epochs | processor seconds | {SHOWN} |",
        "|---|" + "---:|" * 7,
    ]
    for name, network in networks.items():
        about = network.about
        facts = [
            f"{about['parameters']:,}",
            f"{about['multiply_adds'] / 1e6:.1f}",
            network.last,
            f"{about['processor_seconds']:,.0f}",
        ]
        lines.append(f"| {name} | {' | '.join(facts)} | {shown(network, network.last)} |")
    lines += [
        "",
        "Processor seconds are those of the whole run, on one thread of a machine with other work on it.",
        "",
        "## Checkpoints, uncalibrated, on test rows",
        "",
        f"| network | epoch | {SHOWN} |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, network in networks.items():
        for epoch in network.checkpoints:
            mark = " (early stopping)" if epoch == network.early_stopping else ""
            lines.append(f"| {name} | {epoch}{mark} | {shown(network, epoch)} |")
    return "\n".join(lines) + "\n"


def shown(network: Network, epoch: str) -> str:
    """Return accuracy, NLL and KS of the uncalibrated test rows."""
    test = network.checkpoints[epoch].test
    p, y = test.probabilities(), test.labels
    accuracy, ks = 100 * metrics.accuracy(p, y), 100 * metrics.ks(p, y)
    return f"{accuracy:.2f} | {metrics.nll(test):.4f} | {ks:.3f}"
