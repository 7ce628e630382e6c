"""Every method on every checkpoint of every base network -> scores with 95 % intervals, and the KS by chance."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from experiments.paper.studies.lines import NONE, Line, different, markdown, page, where
from experiments.paper.studies.scoring import MAIN, METHODS, METRICS, calibrated, printed
from experiments.paper.studies.sets import PLACE, RowSet
from experiments.paper.studies.study import Done, Job, Study

from glayers.metrics import intervals, ks_test


@dataclass(frozen=True)
class Networks(Study):
    """Whether partially trained networks can be calibrated, as the paper's theorem states."""

    methods: tuple[str, ...] = METHODS
    n_resamples: int = 200

    name: ClassVar[str] = "networks"
    about: ClassVar[str] = (
        "Fitted on the calibration rows of a checkpoint, scored on its test rows; in brackets 95 % intervals over test "
        "rows. `*` is a KS error within chance, with what a calibrated model of the same scores stays below in 95 % of "
        "cases instead: bootstrap intervals of so small an error, and any of the ECE, are in the csv but not to be "
        "trusted."
    )
    keys: ClassVar[tuple[str, ...]] = (*PLACE, "method")
    columns: ClassVar[tuple[str, ...]] = (
        "early_stop",
        *(f"{name}{end}" for name in METRICS for end in ("", "_low", "_high")),
        *("ks_expected", "ks_bound", "ks_p_value", "note"),
    )

    def jobs(self, sets: list[RowSet]) -> Iterator[Job]:
        """Return one job per checkpoint and method."""
        for rows in sets:
            for method in self.methods:
                yield Job((*rows.place, method), partial(self._lines, rows, method))

    def _lines(self, rows: RowSet, method: str, _: Done) -> list[Line]:
        p, note = calibrated(method, 0, rows.calibration, rows.test)
        line = dict.fromkeys(self.columns, "") | {"early_stop": "yes" if rows.is_early_stop else "no", "note": note}
        if p is None:
            return [line]
        found = intervals(p, rows.test.labels, n_resamples=self.n_resamples)
        for name in METRICS:
            interval = found[name]
            ends = {"": interval.value, "_low": interval.low, "_high": interval.high}
            line |= {f"{name}{end}": printed(name, value) for end, value in ends.items()}
        test = ks_test(p, rows.test.labels)
        line |= {"ks_expected": printed("ks", test.expected), "ks_bound": printed("ks", test.bound)}
        return [line | {"ks_p_value": f"{test.p_value:.4f}"}]

    def tables(self, lines: list[Line]) -> str:
        """Return KS and NLL by checkpoint for the main methods, and all methods at the end of training."""
        there = different(lines, "method")
        main = [method for method in MAIN if method in there]
        return page(
            "`g-layers-paper` is the paper's recipe at 3 layers with its own search. The early stop is the epoch of "
            "least loss on the calibration rows.",
            *(f"## {METRICS[metric].heading}\n\n{_by_checkpoint(lines, main, metric)}" for metric in ("ks", "nll")),
            "## Calibrated at every checkpoint?",
            "Checkpoints whose KS error a calibrated model could show, and the mean NLL over checkpoints.",
            _counted(lines, there),
            "## Every method after the last epoch",
            *(f"{network}\n\n{_all_methods(where(lines, network=network))}" for network in different(lines, "network")),
            "## What the fits said",
            _notes(lines),
        )


def _by_checkpoint(lines: list[Line], methods: list[str], metric: str) -> str:
    rows = []
    for network in different(lines, "network"):
        for checkpoint in different(where(lines, network=network), "checkpoint"):
            mine = {line["method"]: line for line in where(lines, network=network, checkpoint=checkpoint)}
            first = next(iter(mine.values()))
            epoch = checkpoint + (", early stop" if first["early_stop"] == "yes" else "")
            accuracy = f"{float(first['accuracy']):.1f}" if first["accuracy"] else NONE
            rows.append([network, epoch, accuracy, *(_cell(mine[m], metric) if m in mine else NONE for m in methods)])
    return markdown(["network", "epoch", "accuracy", *methods], rows, words=2)


def _cell(line: Line, metric: str) -> str:
    if not line[metric]:
        return NONE
    digits = METRICS[metric].digits
    value, low, high = (f"{float(line[metric + end]):.{digits}f}" for end in ("", "_low", "_high"))
    if metric == "ece":
        return value
    if metric == "ks" and within_chance(line):
        return f"{value}* (≤ {float(line['ks_bound']):.{digits}f})"
    return f"{value} [{low}, {high}]"


def within_chance(line: Line) -> bool:
    """Whether a calibrated model could show this KS error."""
    return float(line["ks_p_value"]) > 0.05


def _counted(lines: list[Line], methods: list[str]) -> str:
    rows = []
    for method in methods:
        mine = [line for line in where(lines, method=method) if line["ks"]]
        if mine:
            chance = sum(map(within_chance, mine))
            ks, nll = (sum(float(line[metric]) for line in mine) / len(mine) for metric in ("ks", "nll"))
            rows.append([method, f"{chance} of {len(mine)}", f"{ks:.2f}", f"{nll:.4f}"])
    return markdown(["method", "within chance", "mean KS, percent", "mean NLL"], rows)


def _all_methods(lines: list[Line]) -> str:
    last = str(max(int(line["checkpoint"]) for line in lines))
    rows = [[line["method"], *(_cell(line, metric) for metric in METRICS)] for line in where(lines, checkpoint=last)]
    return markdown(["method", *(about.heading for about in METRICS.values())], rows)


def _notes(lines: list[Line]) -> str:
    said = [
        f"- {line['network']}, epoch {line['checkpoint']}, {line['method']}: {line['note']}"
        for line in lines
        if line["note"]
    ]
    return "\n".join(said or ["Nothing."])
