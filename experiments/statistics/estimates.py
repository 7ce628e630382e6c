"""Sets of logits -> how well `glayers.estimate` tells the accuracy of rows whose labels it does not see.

Writes experiments/results/estimates.csv and the same as Markdown. DIR holds .npz files with logits_val, y_val,
logits_test, y_test. The rows of a set are shuffled; half of them, at most 5,000, are calibration rows, and 1,000
others, at most half of those left, are new rows. "Resampled classes" draws the new rows without replacement with other
class frequencies (Dirichlet, 2 per class); "another network" takes new rows of the same task from the next
set, where there is one. Errors are in points of accuracy, means over splits that `estimate` did not refuse; the bias is
the mean of estimate minus truth.

The splits of a set share its labels. "Drawn labels" tells whether a set covers too little by the chance of these: for
each split, the labels of all rows are drawn from what `auto` says after a fit on all of them. The truth is then known,
and no two splits share labels.

CBPE of nannyml (one isotonic regression per class) has pins of its own, so that it runs in another environment, before
this study: `python experiments/statistics/estimates.py --logits DIR --cbpe FILE` with nannyml writes its errors to
FILE, which `--with-cbpe FILE` adds to the table; without it, the column stays as it is. nannyml 0.13.1 also needs
statsmodels, which it does not name, and sends usage data unless NML_DISABLE_USAGE_LOGGING is set.
"""

import argparse
import csv
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "estimates.csv"
DRAWN = ", drawn labels"
KINDS = ("the same kind", "resampled classes", "another network", f"the same kind{DRAWN}", f"resampled classes{DRAWN}")
NEW_ROWS, MOST, LEVEL = 1_000, 5_000, 0.9
MANY = 10  # classes; more take longer
SPLITS = {"few": 100, "many": 50}
CBPE_SPLITS = {"few": 10, "many": 3}  # the first of these splits; it takes 12 s for one split of 100 classes
ERRORS = ["error", "error_temperature", "error_uncalibrated", "error_cbpe"]
COLUMNS = ["set", "rows", "tried", "refused", "adapted", "covered", "bias", *ERRORS]


class Split:
    """Calibration rows, and new rows of each kind."""

    def __init__(self, file: Path, seed: int, draw_labels: bool = False) -> None:
        logits, labels = rows_of(file)
        other = sibling(file)
        if draw_labels:
            cumulative = truth(file).cumsum(axis=1)
            shares = np.random.default_rng([seed, 1]).uniform(size=(len(labels), 1))
            labels = (shares * cumulative[:, -1:] > cumulative).sum(axis=1)
            other = None
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(labels))
        half = min(MOST, len(labels) // 2)
        rest = order[half:]
        n_new = min(NEW_ROWS, len(rest) // 2)
        chance = rng.dirichlet(np.full(labels.max() + 1, 2.0))[labels[rest]]
        drawn = rng.choice(rest, n_new, replace=False, p=chance / chance.sum())
        self.logits = logits[order[:half]]
        self.labels = labels[order[:half]]
        same = logits[rest[:n_new]], labels[rest[:n_new]]
        self.new = {"the same kind": same, "resampled classes": (logits[drawn], labels[drawn])}
        if other is not None:
            logits, labels = rows_of(other)
            some = rng.permutation(len(labels))[:n_new]
            self.new["another network"] = logits[some], labels[some]


def rows_of(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows of a set."""
    with np.load(file) as parts:
        logits = np.concatenate([parts["logits_val"], parts["logits_test"]])
        return logits, np.concatenate([parts["y_val"], parts["y_test"]]).ravel().astype(int)


@cache
def truth(file: Path) -> np.ndarray:
    """Return the probabilities (n, k) of `auto`, fitted on all rows."""
    from glayers import AutoCalibrator, Predictions

    logits, labels = rows_of(file)
    auto = AutoCalibrator(time_budget=0, progress=False).fit_predictions(Predictions(logits, labels))
    return np.asarray(auto.predict_proba(logits))


@cache
def sibling(file: Path) -> Path | None:
    """Return the next set, in a circle, with the same classes by another network; None if there is none."""
    task = file.stem.split("_")[0]
    others = [each for each in sorted(file.parent.glob(f"{task}_*.npz")) if "longtail" not in each.stem]
    if len(others) < 2:
        return None
    return others[(others.index(file) + 1) % len(others)]


def files_of(folder: Path, splits: dict[str, int]) -> list[tuple[Path, int]]:
    """Return the sets whose two parts are of one kind, those with few classes first, and the number of their splits."""
    found = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as parts:
            size = "many" if parts["logits_val"].shape[1] > MANY else "few"
        if "longtail" not in file.stem:
            found.append((size, file))
    return [(file, splits[size]) for size, file in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cbpe", type=Path, metavar="FILE", help="with nannyml: write its errors here, and end")
    parser.add_argument("--splits", type=Path, metavar="FILE", help="keeps what is done, to go on later")
    parser.add_argument("--with-cbpe", type=Path, metavar="FILE", help="the errors of nannyml, from --cbpe")
    given = parser.parse_args()
    if given.cbpe is not None:
        write_cbpe(given.logits, given.cbpe)
        return
    found: dict[tuple[str, str], list[list[float] | None]] = {}
    for name, by_kind in all_splits(given.logits, given.splits):
        for kind, numbers in by_kind.items():
            found.setdefault((name, kind), []).append(numbers)
    if given.with_cbpe is not None:
        with given.with_cbpe.open(encoding="utf-8") as table:
            for name, kind, place, error in csv.reader(table):
                numbers = None
                if kind != "another network":  # of which most are refused
                    numbers = found[name, kind][int(place)]
                if numbers is not None:
                    numbers[-1] = float(error)
    tested = apart(found)
    for kind in KINDS:
        found["all", kind] = [numbers for (_, other), each in found.items() if other == kind for numbers in each]
    lines = [[*names, *summary(each)] for names, each in found.items()]
    if given.with_cbpe is None:
        with RESULTS.open(newline="", encoding="utf-8") as table:
            known = {(line["set"], line["rows"]): line["error_cbpe"] for line in csv.DictReader(table)}
        for line in lines:
            line[-1] = known.get((line[0], line[1]), "")
    write(lines, tested)


def all_splits(folder: Path, keep: Path | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of the set and the numbers of each split by kind, in the order of the seeds."""
    done = []
    if keep is not None and keep.exists():
        done = [json.loads(line) for line in keep.read_text(encoding="utf-8").splitlines()]
    known = {(name, seed) for name, seed, _ in done}
    for seed in range(max(SPLITS.values())):
        for file, n_splits in files_of(folder, SPLITS):
            if seed >= n_splits or (file.stem, seed) in known:
                continue
            numbers = {}
            for ending in ("", DRAWN):
                for kind, of_kind in one(Split(file, seed, bool(ending)), seed).items():
                    numbers[kind + ending] = of_kind
            done.append([file.stem, seed, numbers])
            print(file.stem, seed, flush=True)
            if keep is not None:
                with keep.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(done[-1]) + "\n")
    names = [file.stem for file, _ in files_of(folder, SPLITS)]
    done.sort(key=lambda split: (names.index(split[0]), split[1]))
    return [(name, numbers) for name, _, numbers in done]


def one(split: Split, seed: int) -> dict[str, list[float] | None]:
    """Return adapted, covered, bias and four errors by kind, that of CBPE unknown; None if the rows are refused."""
    from glayers import AutoCalibrator, GlayersError, Predictions, TemperatureScaling, estimate

    found: dict[str, list[float] | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibration = Predictions(split.logits, split.labels)
        auto = AutoCalibrator(time_budget=0, progress=False).fit_predictions(calibration)
        temperature = TemperatureScaling().fit_predictions(calibration)
        for kind, (logits, labels) in split.new.items():
            try:
                estimated = estimate(auto, logits, level=LEVEL, random_state=seed)
            except GlayersError:
                found[kind] = None
                continue
            right = float((auto.predict(logits) == labels).mean())
            own = float((logits.argmax(axis=1) == labels).mean())
            covered = estimated.accuracy.low <= right <= estimated.accuracy.high
            bias = estimated.accuracy.value - right
            of_temperature = abs(temperature.predict_proba(logits).max(axis=1).mean() - own)
            plain = abs(Predictions(logits, labels).probabilities().max(axis=1).mean() - own)
            numbers = [estimated.changed, covered, bias, abs(bias), of_temperature, plain, np.nan]
            found[kind] = [float(number) for number in numbers]
    return found


def write_cbpe(folder: Path, output: Path) -> None:
    """Write the absolute error of CBPE, whose predictions are those of the network, by set, kind and split."""
    import nannyml  # type: ignore[import-not-found]
    import pandas as pd

    def frame(logits: np.ndarray, labels: np.ndarray) -> Any:
        p = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        columns = {f"p{c}": p[:, c] for c in range(p.shape[1])}
        return pd.DataFrame({**columns, "label": labels.astype(str), "said": p.argmax(axis=1).astype(str)})

    with output.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table, lineterminator="\n")
        for file, n_splits in files_of(folder, CBPE_SPLITS):
            for seed in range(n_splits):
                split = Split(file, seed)
                reference = frame(split.logits, split.labels)
                seen = sorted(set(reference["label"]) | set(reference["said"]))
                options: dict[str, Any] = {"y_true": "label", "y_pred": "said", "metrics": ["accuracy"]}
                options |= {"y_pred_proba": {c: f"p{c}" for c in seen}, "problem_type": "classification_multiclass"}
                if split.logits.shape[1] == 2:
                    reference[["label", "said"]] = reference[["label", "said"]].astype(int)
                    options |= {"y_pred_proba": "p1", "problem_type": "classification_binary"}
                model = nannyml.CBPE(chunk_number=1, **options)
                model.fit(reference)
                for kind, (logits, labels) in split.new.items():
                    new = frame(logits, labels)
                    if split.logits.shape[1] == 2:
                        new["said"] = new["said"].astype(int)
                    found = model.estimate(new.drop(columns="label")).filter(period="analysis").to_df()
                    value = float(found["accuracy"]["value"].iloc[0])
                    own = float((logits.argmax(axis=1) == labels).mean())
                    writer.writerow([file.stem, kind, seed, abs(value - own)])
            print(file.stem, flush=True)


def summary(found: list[list[float] | None]) -> list[str]:
    kept = [numbers for numbers in found if numbers is not None]
    counts = [str(len(found)), f"{1 - len(kept) / len(found):.2f}"]
    if not kept:
        return [*counts, *[""] * (len(COLUMNS) - 4)]
    adapted, covered, bias, *errors = np.array(kept, dtype=float).T
    said = [f"{100 * bias.mean():+.2f}"]
    for each in errors:
        known = each[~np.isnan(each)]
        said.append(f"{100 * known.mean():.2f}" if known.size else "")
    return [*counts, f"{adapted.mean():.2f}", f"{covered.mean():.2f}", *said]


def apart(found: dict[tuple[str, str], list[list[float] | None]]) -> str:
    """Say whether single sets cover more or less often than the level by more than the chance of their splits."""
    from scipy.stats import binomtest

    from glayers.metrics import adjust

    p_values = []
    for kept in ([numbers for numbers in each if numbers is not None] for each in found.values()):
        covered = int(sum(numbers[1] for numbers in kept))
        if len(kept) > 1:  # not those of another network
            p_values.append(binomtest(covered, len(kept), LEVEL).pvalue)
    smallest = min(adjust(p_values).tolist())
    return (
        f"Exact binomial tests ask of each of {len(p_values)} lines of single sets whether it covers as often as that: "
        f"the smallest p-value is {min(p_values):.2g}, and {smallest:.2g} by Holm's correction. "
    )


def write(lines: list[list[str]], tested: str) -> None:
    """Write the table as csv and as Markdown."""
    from experiments.stamp import write_page

    from glayers.text_tables import markdown_table

    with RESULTS.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([COLUMNS, *lines])
    heads = [name.replace("_", " ") for name in COLUMNS]
    head = (
        "Made by `python -m experiments.statistics.estimates --logits DIR`. Intervals are meant to cover "
        f"{100 * LEVEL:g} %; errors are mean absolute errors in points, over splits that `estimate` did not refuse. "
        f"{tested}"
        "`estimate` and its truth are about the predictions of `auto`, the other columns about those of the network. "
        "The splits of a set share its labels; with drawn labels, each split has labels of its own from known "
        "probabilities. "
        f"CBPE is that of nannyml, in an environment of its own, on the first {CBPE_SPLITS['few']} splits of each set, "
        f"{CBPE_SPLITS['many']} where it has more than {MANY} classes.\n\n"
    )
    write_page(RESULTS.with_suffix(".md"), head + markdown_table([heads, *lines]) + "\n")


if __name__ == "__main__":
    main()
