"""Our metrics beside the peers' on 25,000 x 1,000 float32, as ratios to one `max` over the array in the same run.

Run it with `make bench-metrics`; `--check` exits with 1 where a ratio is over its limit.
"""

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from glayers import metrics

Call = Callable[[], object]
LIMITS = {"ECE": 2.0, "KS, top-1": 2.0, "Brier": 2.0, "class-wise ECE": 15.0, "mean KS, 10 ranks": 40.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=25_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="without other libraries")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these metrics, by their names in the table")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a ratio is over its limit")
    settings = parser.parse_args()
    probabilities, labels = sample(settings.rows, settings.classes)
    unit = best_time(lambda: probabilities.max(axis=1), settings.repeats)
    size = f"{settings.rows:,} x {settings.classes:,} float32"
    print(f"One max over each row of {size}: {unit * 1e3:.1f} ms = 1.0\n")
    print(f"| metric | glayers ms | ratio | limit | {'peers, as ratio to ours'} |\n|---|---|---|---|---|")
    over = []
    for name, ours, peers in contests(probabilities, labels, settings.alone):
        if settings.only and name not in settings.only:
            continue
        taken = best_time(ours, settings.repeats)
        rivals = ", ".join(
            f"{peer} {best_time(call, 1) / taken:.0f}x" for peer, call in peers.items() if call is not None
        )
        limit = LIMITS.get(name)
        if limit is not None and taken / unit > limit:
            over.append(name)
        print(
            f"| {name} | {taken * 1e3:.1f} | {taken / unit:.2f} | {'' if limit is None else f'{limit:g}'} | {rivals} |",
            flush=True,
        )
    print("\nOver the limit: " + ", ".join(over) if over else "\nAll within their limits.")
    return int(bool(over) and settings.check)


def sample(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of Gaussian logits, as peaked as those of a trained network, with labels drawn from it."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((rows, classes), dtype=np.float32)
    labels = (logits + rng.gumbel(size=logits.shape).astype(np.float32)).argmax(axis=1)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), labels


def best_time(call: Call, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()  # other work on the machine counts less than in elapsed time
            call()
            times.append(time.process_time() - start)
    return min(times)


def contests(p: np.ndarray, y: np.ndarray, alone: bool = False) -> list[tuple[str, Call, dict[str, Call]]]:
    """Return the name of each metric, our call, and those of the peers."""
    ours: dict[str, Call] = {
        "accuracy": lambda: metrics.accuracy(p, y),
        "ECE": lambda: metrics.ece(p, y),
        "KS, top-1": lambda: metrics.ks(p, y),
        "Brier": lambda: metrics.brier(p, y),
        "NLL": lambda: metrics.nll(p, y),
        "class-wise ECE": lambda: metrics.classwise_ece(p, y),
        "mean KS, 10 ranks": lambda: metrics.mean_top_ks(p, y),
        "class-wise KS": lambda: metrics.classwise_ks(p, y),
        "smooth ECE": lambda: metrics.smooth_ece(p, y),
        "whole scorecard": lambda: metrics.scorecard(p, y),
    }
    peers = {} if alone else calls_of_peers(p, y)
    return [(name, call, peers.get(name, {})) for name, call in ours.items()]


def calls_of_peers(p: np.ndarray, y: np.ndarray) -> dict[str, dict[str, Call]]:
    import torch
    from netcal.metrics import ECE
    from probmetrics.metrics import Metrics
    from sklearn.metrics import brier_score_loss, log_loss
    from torchmetrics.functional.classification import multiclass_calibration_error

    torch.set_num_threads(1)
    tensor, target = torch.from_numpy(p), torch.from_numpy(y)

    def probmetrics(name: str) -> Call:
        return lambda: Metrics.from_names([name]).compute_all_from_labels_probs(target, tensor)

    classes = np.arange(p.shape[1])
    return {
        "ECE": {
            "netcal": lambda: ECE(15).measure(p, y),
            "torchmetrics": lambda: multiclass_calibration_error(tensor, target, p.shape[1], n_bins=15),
            "probmetrics": probmetrics("ece-15"),
        },
        "Brier": {
            "scikit-learn": lambda: brier_score_loss(y, p, labels=classes),
            "probmetrics": probmetrics("brier"),
        },
        "NLL": {"scikit-learn": lambda: log_loss(y, p, labels=classes), "probmetrics": probmetrics("logloss")},
        "smooth ECE": {"probmetrics": probmetrics("smece")},
    }


if __name__ == "__main__":
    sys.exit(main())
