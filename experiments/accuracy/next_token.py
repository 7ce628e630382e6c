"""Manual pages -> a small next-word network, and its logits on pages it has not seen: many classes, most of them rare.

The pages come with Debian packages (`manpages`, `manpages-dev` and every other installed one). A class is a word: the
most frequent ones, and one more for all others. A page is a group: its words depend on each other. The network is an
embedding of the four words before and two layers. On one core it trains in a few minutes.

    python -m experiments.accuracy.next_token --words 1000 --out next_token_1000.npz
    python -m experiments.accuracy.next_token --words 5000 --out next_token_5000.npz

The file holds logits_val, y_val, groups_val and the same for test, so that `methods_table.py` and `glayers compare`
read it. Logits are large and are not committed; `--table` fits our methods and prints their scores instead.
"""

import argparse
import gzip
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glayers import Predictions, compare

CONTEXT = 4
UNITS = 96
BATCH = 512
MOST_WORDS = 400  # of one page, so that no page dominates
WORD = re.compile(r"[a-z]+|[0-9]+|[.,;:()\[\]{}<>=*/\"'-]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=1_000, help="number of classes")
    parser.add_argument("--pages", type=Path, default=Path("/usr/share/man"))
    parser.add_argument("--most-pages", type=int, default=4_000)
    parser.add_argument("--rows", type=int, default=10_000, help="rows for calibration, and as many for test")
    parser.add_argument("--minutes", type=float, default=3.0, help="training time")
    parser.add_argument("--out", type=Path, help="write the logits to this .npz file")
    parser.add_argument("--table", nargs="+", metavar="METHOD", help="fit these methods and print their scores")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    pages = read_pages(given.pages, given.most_pages, given.seed)
    train, validation, test = np.split(np.arange(len(pages)), [int(0.6 * len(pages)), int(0.8 * len(pages))])
    number_of = vocabulary([pages[page] for page in train], given.words)
    before, after, _ = examples(pages, train, number_of)
    network = trained(before, after, given.words, given.minutes)
    parts = {
        name: logits_of(network, examples(pages, some, number_of), given.rows, given.seed)
        for name, some in (("val", validation), ("test", test))
    }
    for name, (logits, labels, groups) in parts.items():
        seen = len(np.unique(labels))
        facts = f"{len(labels):,} rows of {len(np.unique(groups)):,} pages, {seen:,} of {given.words:,} classes occur"
        print(f"{name}: {facts}, accuracy {(logits.argmax(axis=1) == labels).mean():.3f}")
    if given.out:
        arrays: dict[str, Any] = {
            f"{field}_{name}": array
            for name, part in parts.items()
            for field, array in zip(("logits", "y", "groups"), part, strict=True)
        }
        np.savez(given.out, **arrays)
    if given.table:
        rows, test_rows = (Predictions(z, y, groups=groups) for z, y, groups in parts.values())
        print(compare(rows, test_rows, given.table))


def read_pages(folder: Path, most: int, seed: int) -> list[list[str]]:
    """Return the words of a random choice of pages, without formatting commands; pages of few words are left out."""
    files = sorted(folder.glob("man[1-9]/*.gz"))
    if not files:
        raise SystemExit(f"{folder} has no manual pages; install them: apt-get install manpages manpages-dev")
    chosen = np.random.default_rng(seed).permutation(len(files))[:most]
    pages = []
    for place in chosen:
        text = gzip.decompress(files[place].read_bytes()).decode("utf-8", errors="ignore").lower()
        lines = [line for line in text.splitlines() if not line.startswith((".", "'"))]
        words = WORD.findall(re.sub(r"\\(f.|\(..|\*.|.)", " ", " ".join(lines)))[:MOST_WORDS]
        if len(words) > 50:
            pages.append(words)
    return pages


def vocabulary(pages: list[list[str]], words: int) -> dict[str, int]:
    """Return the class of each frequent word; class 0 holds all others."""
    frequent = Counter(word for page in pages for word in page).most_common(words - 1)
    return {word: number for number, (word, _) in enumerate(frequent, start=1)}


def examples(pages: list[list[str]], chosen: np.ndarray, number_of: dict[str, int]) -> tuple[np.ndarray, ...]:
    """Return the words before each word (n, CONTEXT), the word itself (n,), and its page."""
    before, after, groups = [], [], []
    for page in chosen:
        words = np.array([number_of.get(word, 0) for word in pages[page]])
        before.append(np.lib.stride_tricks.sliding_window_view(words[:-1], CONTEXT))
        after.append(words[CONTEXT:])
        groups.append(np.full(len(words) - CONTEXT, page))
    return np.concatenate(before), np.concatenate(after), np.concatenate(groups)


def trained(before: np.ndarray, after: np.ndarray, words: int, minutes: float) -> torch.nn.Module:
    """Train by cross-entropy for some minutes; with several passes over the pages the network becomes overconfident."""
    network = torch.nn.Sequential(
        torch.nn.Embedding(words, UNITS),
        torch.nn.Flatten(),
        torch.nn.Linear(CONTEXT * UNITS, 4 * UNITS),
        torch.nn.ReLU(),
        torch.nn.Linear(4 * UNITS, words),
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    x, y = torch.as_tensor(before), torch.as_tensor(after)
    began, steps = time.process_time(), 0
    while time.process_time() - began < 60 * minutes:
        rows = torch.randint(0, len(x), (BATCH,))
        loss = torch.nn.functional.cross_entropy(network(x[rows]), y[rows])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        steps += 1
    print(f"{len(x):,} training rows, {steps * BATCH / len(x):.1f} passes, last loss {loss.item():.2f}")
    return network


def logits_of(
    network: torch.nn.Module, rows: tuple[np.ndarray, ...], most: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits, labels and groups of rows drawn at random."""
    before, after, groups = rows
    some = np.sort(np.random.default_rng(seed).permutation(len(after))[:most])
    with torch.no_grad():
        logits = torch.cat([network(part) for part in torch.split(torch.as_tensor(before[some]), 1_000)])
    return logits.numpy(), after[some], groups[some]


if __name__ == "__main__":
    main()
