"""Sets of logits whose test rows are drawn with other class frequencies -> what `adapt` brings, and what its tests say.

Run: python -m experiments.accuracy.class_shift --logits DIR [--models DIR] (writes results/class_shift.csv and .md)

Each draw takes test rows at random so that classes have given frequencies; or calibration rows, and then all test rows
are new ("tail 10:1 to all"). Temperature scaling runs on every set; `auto` on a few, whose fits are kept in `--models`.
"given" adapts to the true class frequencies of the new rows.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from experiments.stamp import write_page
from scipy import stats

from glayers import AutoCalibrator, Calibrator, GlayersWarning, TemperatureScaling, VectorScaling, load, metrics
from glayers.text_tables import markdown_table

RESULTS = Path(__file__).parents[1] / "results" / "class_shift.csv"
LONG_TAIL = "cifar10_longtail_resnet110"
AUTO_SETS = (LONG_TAIL, "cifar10_resnet20", "imdb2_text")
# Another network on the same images, whose logits are no class shift.
OTHER_NETWORK = {"cifar10_resnet20": "cifar10_resnet110", "cifar100_resnet20": "cifar100_resnet110"}
DRAWS, SPLITS, MOST_NEW = 5, 600, 4_000  # new rows per draw, of those with the wanted frequencies
TAILS = {"none": 1.0, "tail 3:1": 3.0, "tail 10:1": 10.0, "tail 100:1": 100.0}
NOISE = "noise of half a standard deviation"
LEVEL_SETS = ("cifar10_resnet20", "imdb2_text", "emotion6_llama2_13b", "cifar100_resnet20")
LEVEL_ROWS = (2_000, 1_000)  # to calibrate on, and new
Rows = tuple[np.ndarray, np.ndarray]
Line = dict[str, Any]


def main() -> None:
    warnings.simplefilter("ignore", GlayersWarning)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("build/class_shift_models"))
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    sets = {file.stem: parts_of(file) for file in sorted(options.logits.glob("*.npz"))}
    lines: list[Line] = []
    for name, (calibration, test) in sets.items():
        began = time.perf_counter()
        fits: dict[str, Calibrator] = {"temperature": TemperatureScaling().fit(*calibration)}
        if name in AUTO_SETS:
            fits["auto"] = fitted_auto(options.models / f"{name}.safetensors", calibration)
        others = {OTHER_NETWORK[name]: sets[OTHER_NETWORK[name]][1]} if name in OTHER_NETWORK else {}
        for method, calibrator in fits.items():
            lines += shifted(name, method, calibrator, test, others)
        if name != LONG_TAIL:
            lines += from_tails(name, calibration, test)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    refits = weighted_refits(options.models, *sets[LONG_TAIL])
    levels = [level_of(name, *sets[name]) for name in LEVEL_SETS]
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: rounded(value) for name, value in line.items()} for line in lines)
    write_page(RESULTS.with_suffix(".md"), page(lines, refits, levels))


def parts_of(file: Path) -> tuple[Rows, Rows]:
    held = np.load(file)
    return (held["logits_val"], held["y_val"]), (held["logits_test"], held["y_test"])


def fitted_auto(path: Path, calibration: Rows, weights: np.ndarray | None = None) -> Calibrator:
    if not path.exists():
        AutoCalibrator(random_state=0, progress=False).fit(*calibration, weights).save(path)
    return load(path)


def shifted(name: str, method: str, calibrator: Calibrator, test: Rows, others: dict[str, Rows]) -> Iterable[Line]:
    """Yield one line per shift and draw."""
    logits, labels = test
    if name == LONG_TAIL:
        yield measured(name, method, "tail to balanced", 0, calibrator, test)
    for shift, ratio in TAILS.items():
        if name == LONG_TAIL and shift == "none":
            continue  # its test rows are shifted already
        for draw in range(DRAWS):
            rng = np.random.default_rng(draw)
            rows = rng.permutation(drawn_rows(labels, ratio, rng))[:MOST_NEW]
            yield measured(name, method, shift, draw, calibrator, (logits[rows], labels[rows]))
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        rows = rng.permutation(len(labels))[: min(MOST_NEW, len(labels) // 2)]
        finite = logits[rows].astype(np.float64)
        noisy = finite + 0.5 * finite.std() * rng.normal(size=finite.shape)
        yield measured(name, method, NOISE, draw, calibrator, (noisy, labels[rows]))
        for other, (their_logits, their_labels) in others.items():
            some = rng.permutation(len(their_labels))[: len(rows)]
            given = their_logits[some], their_labels[some]
            yield measured(name, method, "other network", draw, calibrator, given) | {"note": other}


def from_tails(name: str, calibration: Rows, test: Rows) -> Iterable[Line]:
    """Yield one line per method, ratio and draw: fitted on a tail, and test rows as they are."""
    for method, kind in {"temperature": TemperatureScaling, "vector": VectorScaling}.items():
        for ratio in (10.0, 100.0):
            for draw in range(DRAWS):
                rng = np.random.default_rng(draw)
                rows, new = drawn_rows(calibration[1], ratio, rng), rng.permutation(len(test[1]))[:MOST_NEW]
                fitted = kind().fit(calibration[0][rows], calibration[1][rows])
                yield measured(name, method, f"tail {ratio:.0f}:1 to all", draw, fitted, (test[0][new], test[1][new]))


def drawn_rows(labels: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return rows whose class frequencies fall by a factor of `ratio`, in a random order of classes; at most half."""
    classes = np.unique(labels)
    share = np.zeros(labels.max() + 1)
    share[rng.permutation(classes)] = ratio ** -np.linspace(0, 1, len(classes))
    if ratio > 1:
        share /= np.maximum(np.bincount(labels), 1)  # also where the test rows are not balanced
    kept = rng.random(len(labels)) < share[labels] / share.max() * (0.5 if ratio == 1 else 1.0)
    return np.flatnonzero(kept)


def measured(name: str, method: str, shift: str, draw: int, calibrator: Calibrator, rows: Rows) -> Line:
    """Return scores before, after EM, and with the true frequencies."""
    logits, labels = rows
    truth = np.maximum(np.bincount(labels, minlength=len(calibrator.classes_)), 0.5)
    estimated = calibrator.adapt(logits)
    found = estimated.adaptation_
    line: Line = {"set": name, "calibrator": method, "shift": shift, "draw": draw, "rows": len(labels)}
    for when, each in (("before", calibrator), ("em", estimated), ("given", calibrator.adapt(frequencies=truth))):
        p = each.predict_proba(logits)
        line |= {f"nll_{when}": metrics.nll(p, labels), f"ks_{when}_%": 100 * metrics.ks(p, labels)}
        line |= {f"accuracy_{when}_%": 100 * metrics.accuracy(p, labels)}
    plain = calibrator.adapt(frequencies=np.maximum(found.estimated, 1e-6))  # no prior
    line["nll_likelihood"] = metrics.nll(plain.predict_proba(logits), labels)
    return line | {"p_value": found.p_value, "fit_p_value": found.fit_p_value, "note": ""}


def weighted_refits(models: Path, calibration: Rows, test: Rows) -> list[list[str]]:
    """Return the scores of fits whose rows are weighted by new over old class frequency, on the long-tailed set."""
    lines = [["calibrator", "what", "NLL", "KS %", "accuracy %"]]
    n_classes = calibration[0].shape[1]
    for name, method in {"temperature": TemperatureScaling, "vector": VectorScaling, "auto": None}.items():
        plain = method().fit(*calibration) if method else fitted_auto(models / f"{LONG_TAIL}.safetensors", calibration)
        em, given = plain.adapt(test[0]), plain.adapt(frequencies=np.bincount(test[1], minlength=n_classes))
        weights = em.adaptation_.ratio[calibration[1]]
        weighted = models / f"{LONG_TAIL}_weighted.safetensors"
        again = method().fit(*calibration, weights) if method else fitted_auto(weighted, calibration, weights)
        for what, each in {"as fitted": plain, "adapted by EM": em, "given": given, "weighted refit": again}.items():
            p = each.predict_proba(test[0])
            scores = metrics.nll(p, test[1]), 100 * metrics.ks(p, test[1]), 100 * metrics.accuracy(p, test[1])
            lines.append([name, what, f"{scores[0]:.4f}", f"{scores[1]:.2f}", f"{scores[2]:.2f}"])
    return lines


def level_of(name: str, *parts: Rows) -> Line:
    """Return how often the tests reject where calibration and new rows are random parts of the same rows.

    For comparison, the textbook test on the same splits: Hotelling's T^2 of two samples of probabilities, by a
    temperature fitted on all rows of the set.
    """
    logits, labels = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    n_old, n_new = LEVEL_ROWS
    rejected, costs = [], []
    fixed = TemperatureScaling().fit(logits, labels).predict_proba(logits)
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(labels))
        old, new = order[:n_old], order[n_old : n_old + n_new]
        calibrator = TemperatureScaling().fit(logits[old], labels[old])
        adapted = calibrator.adapt(logits[new])
        found = adapted.adaptation_
        rejected.append((found.shifted, found.unexplained, two_samples(fixed[old], fixed[new]) <= 0.05))
        nll = (metrics.nll(each.predict_proba(logits[new]), labels[new]) for each in (adapted, calibrator))
        costs.append(next(nll) - next(nll))
    names = ("change rejected %", "fit rejected %", "textbook test rejected %")
    shares = 100 * np.mean(rejected, axis=0)
    half = 196 * np.std(rejected, axis=0) / np.sqrt(SPLITS)
    cells = {each: f"{a:.1f} ± {b:.1f}" for each, a, b in zip(names, shares, half, strict=True)}
    return {"set": name, **cells, "NLL added": with_interval(np.array(costs), "{:.6f}")}


def two_samples(one: np.ndarray, other: np.ndarray) -> float:
    """Return the p-value of Hotelling's test that two samples of probabilities have the same mean."""
    used = np.flatnonzero(one.mean(axis=0) > 0.005)[:-1]  # without rare classes, and without the last: all sum to 1
    one, other, k = one[:, used], other[:, used], len(used)
    rows = len(one) + len(other)
    pooled = np.atleast_2d((len(one) - 1) * np.cov(one.T) + (len(other) - 1) * np.cov(other.T)) / (rows - 2)
    gap = one.mean(axis=0) - other.mean(axis=0)
    statistic = gap @ np.linalg.solve(pooled * (1 / len(one) + 1 / len(other)), gap)
    return float(stats.f.sf(statistic * (rows - k - 1) / (k * (rows - 2)), k, rows - k - 1))


def with_interval(values: np.ndarray, form: str) -> str:
    """Return the mean, and half of its 95 % interval by Student's t."""
    if len(values) == 1:
        return form.format(values[0])
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{form.format(values.mean())} ± {form.format(half)}"


def page(lines: list[Line], refits: list[list[str]], levels: list[Line]) -> str:
    """Return the tables: means over sets and draws, refits, and levels."""
    keys = list(dict.fromkeys((line["calibrator"], line["shift"]) for line in lines))
    scores = [f"{metric}_{when}{unit}" for metric, unit in (("nll", ""), ("ks", "_%"), ("accuracy", "_%"))
              for when in ("before", "em", "given")]  # fmt: skip
    heading = ["calibrator", "shift", "sets", *(name.replace("_", " ") for name in scores)]
    means = [[*heading, "change rejected %", "fit rejected %"]]
    for key in sorted(keys):
        chosen = [line for line in lines if (line["calibrator"], line["shift"]) == key]
        draws = sorted({line["draw"] for line in chosen})
        cells = [
            with_interval(
                np.array([np.mean([line[name] for line in chosen if line["draw"] == draw]) for draw in draws]),
                "{:.2f}" if "%" in name else "{:.4f}",
            )
            for name in scores
        ]
        tests = [
            f"{100 * np.nanmean([line[name] <= 0.05 for line in chosen]):.0f}" for name in ("p_value", "fit_p_value")
        ]
        means.append([*key, str(len({line["set"] for line in chosen})), *cells, *tests])
    by_set = [["set", "NLL added without shift", "NLL gained at 10:1", "as % of the gain with given frequencies"]]
    by_set[0].append("NLL gained at 10:1 without the prior")
    for name in sorted({line["set"] for line in lines} - {LONG_TAIL}):
        own = [line for line in lines if line["set"] == name and line["calibrator"] == "temperature"]
        cost = with_interval(
            np.array([line["nll_em"] - line["nll_before"] for line in own if line["shift"] == "none"]), "{:.5f}"
        )
        tail = [line for line in own if line["shift"] == "tail 10:1"]
        kinds = ("em", "given", "likelihood")
        gain, best, plain = (np.mean([line["nll_before"] - line[f"nll_{kind}"] for line in tail]) for kind in kinds)
        by_set.append([name, cost, f"{gain:.4f}", f"{100 * gain / best:.0f}", f"{plain:.4f}"])
    level_rows = [list(levels[0]), *([rounded(value) for value in line.values()] for line in levels)]
    n_old, n_new = LEVEL_ROWS
    return f"""# Class shift

Made by `python -m experiments.accuracy.class_shift --logits DIR`. "before" is the fitted calibrator, "em" is `adapt`
with unlabelled rows, and "given" is `adapt` with the true class frequencies of these rows. Means over sets and {DRAWS}
draws of at most {MOST_NEW:,} rows; plus or minus: half of a 95 % interval for the mean over draws, by Student's t.

{markdown_table(means, 2)}

"tail to balanced" is the set {LONG_TAIL} as it is: its calibration rows are long-tailed and its test rows are balanced.
"tail 10:1 to all": calibration rows drawn with a tail, and test rows as they are, mostly balanced.
For the noise and the other network, other class frequencies cannot explain the rows, so "fit rejected" should be high.

## By set, temperature scaling

{markdown_table(by_set)}

## Refit with importance weights

{LONG_TAIL}: each calibration row weighted by the new (EM) over the old frequency of its class.

{markdown_table(refits, 2)}

## Level of the tests

{SPLITS} random splits of all rows of a set: {n_old:,} rows to calibrate on and {n_new:,} new rows, so nothing has
shifted. All tests should reject 5 %. "NLL added" is the mean cost of `adapt`. The textbook test is Hotelling's, for a
fixed temperature: where it rejects as often as the change test, the splits are the cause, and not the test.

{markdown_table(level_rows)}
"""


def rounded(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
