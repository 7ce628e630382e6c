"""Sets of logits -> the scorecard before and after `AutoCalibrator`, with 95 percent intervals, p-values and bounds.

Fitted on calibration rows, scored on test rows; results/scores_with_intervals.csv and .md. DIR holds .npz files with
logits_val, y_val, logits_test, y_test. A set in the file is not scored again: delete its lines to repeat it.
"""

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

from experiments.logit_files import read_both
from experiments.stamp import write_page

from glayers import AutoCalibrator, GlayersWarning, Predictions, metrics

RESULTS = Path(__file__).parents[1] / "results" / "scores_with_intervals.csv"
COLUMNS = ["set", "what", "metric", "value", "low", "high", "standard_error", "doubtful", "p_value", "bound"]
BEFORE, AFTER, DIFFERENCE, ABOUT = "uncalibrated", "auto", "difference", "about"
LEVEL = 0.95
DRAWS = 399  # of tests that redraw labels; the smallest p-value is then 0.0025
# A metric in words, its unit, and the factor to that unit.
SHOWN = {
    "ks": ("KS", ", percent", 100),
    "ece": ("ECE", ", percent", 100),
    "classwise_ks": ("KS of each class", ", mean, percent", 100),
    "classwise_ece": ("ECE of each class", ", mean, percent", 100),
    "nll": ("NLL", "", 1),
    "brier": ("Brier score", ", mean over classes, percent", 100),
    "accuracy": ("Accuracy", ", percent", 100),
}
TESTED = ("ks", "ece", "classwise_ks", "classwise_ece")
PAIRED = ("nll", "brier", "ks", "ece", "classwise_ece", "accuracy")
# Its test rows are balanced, its calibration rows are not: no method fitted on these can be calibrated on those.
SHIFTED = "cifar10_longtail_resnet110"
Row = dict[str, str]
Table = dict[tuple[str, str, str], Row]  # by set, what and metric


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sets", nargs="*", default=None, help="only these, by name; all unless given")
    settings = parser.parse_args()
    rows = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.exists() else []
    done = {row["set"] for row in rows}
    for file in sorted(settings.logits.glob("*.npz")):
        if file.stem not in done and (settings.sets is None or file.stem in settings.sets):
            calibration, test = read_both(file)
            new = [dict.fromkeys(COLUMNS, "") | row for row in one_set(file.stem, calibration, test)]
            rows = sorted([*rows, *new], key=lambda row: row["set"])
            write_csv(rows)
            print(f"{file.stem}: {len(rows)} lines", flush=True)
    write_page(RESULTS.with_suffix(".md"), markdown(rows))
    print(RESULTS.with_suffix(".md").read_text(encoding="utf-8"))


def one_set(name: str, calibration: Predictions, test: Predictions) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # classes without rows; the table of methods names them
        auto = AutoCalibrator(random_state=0, progress=False).fit_predictions(calibration)
    parts = {BEFORE: test, AFTER: test.with_logits(auto.transform(test.logits))}
    size = {"set": name, "what": ABOUT}
    rows = [
        size | {"metric": "rows", "value": str(len(test))},
        size | {"metric": "classes", "value": str(test.n_classes)},
    ]
    for what, part in parts.items():
        rows += scored({"set": name, "what": what}, part)
    found = metrics.paired_differences(parts, metrics=PAIRED, level=LEVEL, progress=False)
    for each in found.differences:
        about = {"set": name, "what": DIFFERENCE, "metric": each.metric, "p_value": number(each.p_value)}
        rows.append(about | interval(each.interval))
    return rows


def scored(about: Row, part: Predictions) -> list[Row]:
    """Every metric of the scorecard with its interval, and with its test where there is one."""
    tests = tested(part)
    found = metrics.intervals(part, level=LEVEL, progress=False)
    rows = []
    for metric in found:
        doubtful = {"doubtful": "yes" if found[metric].unreliable or found[metric].one_sided else ""}
        rows.append(about | {"metric": metric} | interval(found[metric]) | doubtful | tests.pop(metric, {}))
    return rows + [about | {"metric": metric} | test for metric, test in tests.items()]


def tested(part: Predictions) -> dict[str, Row]:
    """P-values, and bounds that a calibrated model stays below with probability 95 percent."""
    draws: dict[str, Any] = {"n_resamples": DRAWS, "level": LEVEL}
    found = {
        "ks": metrics.ks_test(part, level=LEVEL),
        "ece": metrics.ece_test(part, **draws),
        "classwise_ks": metrics.classwise_ks_test(part, **draws),
    }
    return {
        name: {"value": number(each.value), "p_value": number(each.p_value), "bound": number(each.bound)}
        for name, each in found.items()
    }


def interval(found: metrics.Interval) -> Row:
    names = ("value", "low", "high", "standard_error")
    return {name: number(value) for name, value in zip(names, found[:4], strict=True)}


def number(value: float) -> str:
    return f"{value:.6g}"


def write_csv(rows: list[Row]) -> None:
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def markdown(rows: list[Row]) -> str:
    value = {(row["set"], row["what"], row["metric"]): row for row in rows}
    sets = list(dict.fromkeys(row["set"] for row in rows))
    lines = [
        "Made by `python -m experiments.statistics.scores_with_intervals --logits DIR`. "
        "Fitted on calibration rows, scored "
        "on test rows; all metrics of the scorecard are in the file beside this one.",
        "",
        *(f"- {said}" for said in sentences(sets, value)),
        "",
        "In brackets 95 % bootstrap intervals (BCa), with a star where they are not to be trusted "
        "(`Interval.unreliable`), as happens to errors near zero. p is the chance of a calibrated model showing as "
        "much, bound what it stays below in 95 % of cases. Differences are after minus before, "
        "on the same rows, with standard errors.",
    ]
    for metric, (words, unit, times) in SHOWN.items():
        lines += ["", f"## {words}{unit}", "", *table(metric, times, sets, value)]
    return "\n".join(lines) + "\n"


def table(metric: str, times: float, sets: list[str], value: Table) -> list[str]:
    columns = ["set", "before", "after"]
    columns += ["p before", "p after", "bound after"] if metric in TESTED else []
    columns += ["difference"] if metric in PAIRED else []
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    for name in sets:
        before, after = (value[name, what, metric] for what in (BEFORE, AFTER))
        cells = [name, shown(before, times), shown(after, times)]
        if metric in TESTED:
            cells += [chance(before), chance(after), digits(after["bound"], times)]
        if metric in PAIRED:
            cells.append(difference(value[name, DIFFERENCE, metric], times))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def sentences(sets: list[str], value: Table) -> list[str]:
    """Count on how many sets each test accepts, and how many differ before and after."""
    said = []
    for metric in TESTED:
        before, after = ([float(value[name, what, metric]["p_value"]) for name in sets] for what in (BEFORE, AFTER))
        outside = [name for name, p in zip(sets, after, strict=True) if p <= 1 - LEVEL]
        surely = [name for name, p in zip(sets, metrics.adjust(after), strict=True) if p <= 1 - LEVEL]
        said.append(
            f"{SHOWN[metric][0]} is inside its 95 % sampling bound on {len(sets) - len(outside)} of {len(sets)} sets "
            f"after `auto` (before: {sum(p > 1 - LEVEL for p in before)}); not on {', '.join(outside) or 'none'}; "
            f"corrected for {len(sets)} tests by Holm's method, not on {', '.join(surely) or 'none'}."
        )
    for metric in PAIRED:
        sure = [(name, value[name, DIFFERENCE, metric]) for name in sets]
        sure = [(name, row) for name, row in sure if float(row["p_value"]) <= 1 - LEVEL]
        lower, higher = ([n for n, row in sure if (float(row["value"]) < 0) is less] for less in (True, False))
        said.append(
            f"{SHOWN[metric][0]}: significantly lower after `auto` on {len(lower)} of {len(sets)} sets, "
            f"higher on {', '.join(higher) or 'none'}."
        )
    if SHIFTED in sets:
        said.append(f"The test rows of {SHIFTED} have other class frequencies than the rows `auto` learned from.")
    return said


def shown(row: Row, times: float) -> str:
    if not row["low"]:
        return digits(row["value"], times)
    star = r" \*" if row["doubtful"] else ""
    return f"{digits(row['value'], times)} ({digits(row['low'], times)} to {digits(row['high'], times)}){star}"


def difference(row: Row, times: float) -> str:
    return f"{times * float(row['value']):+.4g} ± {times * float(row['standard_error']):.2g}"


def chance(row: Row) -> str:
    if not row["p_value"]:
        return ""
    return f"{float(row['p_value']):.2g}" if float(row["p_value"]) >= 1e-4 else "< 0.0001"


def digits(value: str, times: float) -> str:
    return f"{times * float(value):.4g}" if value else ""


if __name__ == "__main__":
    main()
