"""Fit times and test losses of the calibrator families, as ratios to the peers' in the same run.

`--check` exits with 1 where a limit is missed; `--parts` names what to run. Logits are simulated, those for ODIR come
from the packaged sample too, or from `--logits DIR`: .npz files of logits_val, y_val, logits_test, y_test. dirichletcal
is included if it can be imported: it requires Python 3.12, but its source on the PYTHONPATH and jax are enough.
"""

import argparse
import itertools
import resource
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from glayers.activations import log_softmax, softmax
from glayers.calibrators import TemperatureScaling
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling
from glayers.datasets import load_fashion_mnist

LEAST_TEMPERATURE_GAIN = 5.0  # times as fast as scikit-learn
SAME_TEMPERATURE = 1e-6  # relative
LEAST_ODIR_GAIN = 20.0  # times as fast as dirichletcal with its grid
ODIR_GRID = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # from dirichletcal's own example, as are its three folds


class Contest(NamedTuple):
    """The data of a comparison: its name, rows to fit on, rows to test on."""

    name: str
    logits: np.ndarray
    labels: np.ndarray
    test_logits: np.ndarray
    test_labels: np.ndarray


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, default=25_000, help="of the temperature part")
    parser.add_argument("--classes", type=int, default=1_000, help="of the temperature part")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--logits", type=Path, help="a folder of .npz files for the ODIR part")
    parser.add_argument("--most-classes", type=int, default=10, help="leave out sets of more; dirichletcal is slow")
    parser.add_argument("--full-grid", action="store_true", help="let dirichletcal tune lambda and mu apart: 25 pairs")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a limit is missed")
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    missed = [limit for part in settings.parts for limit in PARTS[part](settings)]
    print("\nMissed: " + "; ".join(missed) if missed else "\nNo limit was missed.")
    print(f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    return int(bool(missed) and settings.check)


def temperature_part(settings: argparse.Namespace) -> list[str]:
    """Compare with scikit-learn's own class, without the estimator around it, which would only add time."""
    from sklearn.calibration import _TemperatureScaling

    single, labels = simulate(settings.rows, settings.classes)
    print(f"\n## Temperature scaling, {settings.rows:,} x {settings.classes:,}, best of {settings.repeats}\n")
    print("| logits | fit by | s | CPU s | peak MB | T | times as fast | limit |\n|---|---|---|---|---|---|---|---|")
    truth, missed = 1 / float(_TemperatureScaling().fit(single.astype(np.float64), labels).beta_), []
    for logits in (single, single.astype(np.float64)):
        ours, theirs = Clock(), Clock()
        for _ in range(settings.repeats):  # in turns, so that a busy machine slows both
            fitted = ours.time(partial(TemperatureScaling().fit, logits, labels))
            peer = theirs.time(partial(_TemperatureScaling().fit, logits, labels))
        gain = theirs.best / ours.best
        for name, clock, temperature, fit in (
            ("scikit-learn", theirs, 1 / float(peer.beta_), _TemperatureScaling().fit),
            ("glayers", ours, fitted.temperature_, TemperatureScaling().fit),
        ):
            verdict = f"{gain:.1f} | {LEAST_TEMPERATURE_GAIN:g}" if clock is ours else "|"
            peak = peak_megabytes(partial(fit, logits, labels))
            print(
                f"| {logits.dtype} | {name} | {clock.best:.3f} | {clock.best_cpu:.3f} | {peak:.0f} | {temperature:.8f} "
                f"| {verdict} |",
                flush=True,
            )
        if gain < LEAST_TEMPERATURE_GAIN:
            missed.append(f"temperature scaling of {logits.dtype} is {gain:.1f} times as fast as scikit-learn's")
        if abs(fitted.temperature_ / truth - 1) > SAME_TEMPERATURE:
            missed.append(f"T of {logits.dtype} is {fitted.temperature_:.8f}, scikit-learn's in float64 {truth:.8f}")
    return missed


def odir_part(settings: argparse.Namespace) -> list[str]:
    """Compare strengths chosen by cross-validation with dirichletcal's, chosen from its grid."""
    theirs = find_spec("dirichletcal") is not None
    print("\n## ODIR, strengths by cross-validation" + ("" if theirs else "; dirichletcal is not installed"))
    print("\nDifferences of test NLL are paired over rows, with their standard error.\n")
    print("| set | rows x classes | method | s | CPU s | test NLL | minus dirichletcal | times as fast |")
    print("|---|---|---|---|---|---|---|---|")
    missed: list[str] = []
    differences: dict[str, list[float]] = {}
    for contest in contests(settings):
        peer, peer_clock = None, Clock()
        if theirs:
            peer = peer_clock.time(partial(dirichletcal_losses, contest, settings.full_grid))
            print(odir_line(contest, "dirichletcal", peer_clock, peer) + " | |", flush=True)
        for method, make in ODIR.items():
            clock = Clock()
            for _ in range(settings.repeats):
                fitted = clock.time(partial(make().fit, contest.logits, contest.labels))
            losses = -own_entries(log_softmax(fitted.transform(contest.test_logits)), contest.test_labels)
            line = odir_line(contest, method, clock, losses)
            if peer is not None:
                gain, difference = peer_clock.best / clock.best, losses - peer
                error = float(difference.std() / np.sqrt(len(difference)))
                line += f" {difference.mean():+.5f} +- {error:.5f} | {gain:.0f} |"
                differences.setdefault(method, []).append(float(difference.mean()))
                if gain < LEAST_ODIR_GAIN:
                    missed.append(f"{method} on {contest.name} is {gain:.0f} times as fast as dirichletcal")
                if difference.mean() > 2 * error:
                    missed.append(f"{method} on {contest.name} is worse than dirichletcal")
            print(line if theirs else f"{line} | |", flush=True)
    for method, means in differences.items():
        print(f"\n{method} minus dirichletcal, mean over sets: {np.mean(means):+.5f}")
        if np.mean(means) > 0:
            missed.append(f"{method} is worse than dirichletcal over all sets")
    return missed


# A part takes the settings, prints its measurements, and returns one sentence per missed limit.
PARTS: dict[str, Callable[[argparse.Namespace], list[str]]] = {"temperature": temperature_part, "odir": odir_part}
ODIR: dict[str, Callable[[], Any]] = {
    "DirichletCalibration": DirichletCalibration,
    "MatrixScaling, odir": lambda: MatrixScaling(penalty="odir"),
}


class Clock:
    """The shortest of several wall-clock and processor times; a busy machine hardly affects the second."""

    def __init__(self) -> None:
        self.best = self.best_cpu = np.inf

    def time(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns, and keep its time if it was the shortest."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        self.best = min(self.best, time.perf_counter() - wall)
        self.best_cpu = min(self.best_cpu, time.process_time() - cpu)
        return result


def peak_megabytes(call: Callable[[], object]) -> float:
    """The peak memory of a call, beyond what was allocated before."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def simulate(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated logits, scaled more for some classes than for others, and mixed a little."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.standard_normal((rows, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    stretched = logits * rng.uniform(1.2, 2.0, classes) + rng.normal(size=classes)
    return (stretched + 0.3 * np.roll(stretched, 1, axis=1)).astype(np.float32), labels


def contests(settings: argparse.Namespace) -> Iterator[Contest]:
    if settings.logits is None:
        calibration, test = load_fashion_mnist()
        yield Contest("fashion_mnist", calibration.logits, calibration.labels, test.logits, test.labels)
        for classes in (6, 10):
            logits, labels = simulate(22_000, classes, seed=classes)
            yield Contest(f"simulated{classes}", logits[:2_000], labels[:2_000], logits[2_000:], labels[2_000:])
        return
    for file in sorted(settings.logits.glob("*.npz")):
        with np.load(file) as arrays:
            contest = Contest(file.stem, *(arrays[key] for key in ("logits_val", "y_val", "logits_test", "y_test")))
        if contest.logits.shape[1] <= settings.most_classes:
            yield of_labelled_classes(contest)


def of_labelled_classes(contest: Contest) -> Contest:
    """Leave out classes without a label for all methods, because dirichletcal fails on them."""
    seen, test = np.unique(contest.labels), np.isin(contest.test_labels, contest.labels)
    return Contest(
        contest.name,
        contest.logits[:, seen],
        np.searchsorted(seen, contest.labels),
        contest.test_logits[test][:, seen],
        np.searchsorted(seen, contest.test_labels[test]),
    )


def dirichletcal_losses(contest: Contest, full_grid: bool) -> np.ndarray:
    """Losses of test rows by dirichletcal's ODIR, lambda and mu from its grid by three folds."""
    calibrator = import_module("dirichletcal.calib.fulldirichlet").FullDirichletCalibrator
    p, p_test = (softmax(z.astype(np.float64)) for z in (contest.logits, contest.test_logits))

    def losses(rows: np.ndarray, pair: tuple[float, float], given: np.ndarray, labels: np.ndarray) -> np.ndarray:
        fitted = calibrator(reg_lambda=pair[0], reg_mu=pair[1]).fit(p[rows], contest.labels[rows])
        # Its softmax gives exact zeros, whose infinite loss would decide the comparison.
        return -np.log(np.maximum(own_entries(fitted.predict_proba(given), labels), np.finfo(float).tiny))

    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(p, contest.labels))
    pairs = list(itertools.product(ODIR_GRID, ODIR_GRID) if full_grid else zip(ODIR_GRID, ODIR_GRID, strict=True))
    held_out = [
        np.mean([losses(train, pair, p[held], contest.labels[held]).mean() for train, held in folds]) for pair in pairs
    ]
    return losses(np.arange(len(p)), pairs[int(np.argmin(held_out))], p_test, contest.test_labels)


def own_entries(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return values[np.arange(len(labels)), labels]


def odir_line(contest: Contest, method: str, clock: Clock, losses: np.ndarray) -> str:
    rows, classes = contest.logits.shape
    return (
        f"| {contest.name} | {rows:,} x {classes} | {method} | {clock.best:.2f} | {clock.best_cpu:.2f} "
        f"| {losses.mean():.5f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
