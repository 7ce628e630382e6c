"""`threshold`, `decide`, `estimate`, `watch` and `card`: what somebody does with the probabilities of a file."""

import io
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import glayers
from glayers.cli import arguments as arg
from glayers.cli.arguments import run_facts, show, show_json, show_record
from glayers.cli.scoring import condition_of, failures_of
from glayers.errors import BadFile, GlayersError
from glayers.files import errors_as_bad_file, open_regular, write_whole
from glayers.predictions.contents import Reading

_COSTS = arg.file_option(
    "COSTS", "A table of costs (.csv) without a header: one line per class, one column per action."
)
_PLOT = "Also draw the evidence (wealth) after each batch: .png, .svg or .pdf; an older figure is replaced."
_DATED = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # what differs between runs
_ALPHA = "The highest probability of a false alarm, over all batches together."
_STATE = "The state file, which keeps what earlier batches showed; the first batch creates it."
_PROMISE = "Also raise an alarm once the batches show an accuracy below this: 0.9 or 90%."
_FAIL_IF = 'Exit with 3 if it holds, such as "accuracy < 90 %"; also auroc, lowest_f1 and cost; may be repeated.'

_File = Annotated[Path, arg.file_argument("FILE", arg.PREDICTIONS)]
_Model = Annotated[Path | None, arg.file_option("MODEL", "A file from `glayers fit`: calibrate the rows first.")]
_Level = Annotated[float, arg.probability("The probability with which the guarantee holds.")]
_Actions = Annotated[Path | None, arg.output_option("ACTIONS", "Write the action of each row to a .csv file instead.")]
_Abstain = Annotated[float | None, typer.Option(metavar="COST", help="The cost of abstaining, as one more action.")]
_FailIf = Annotated[list[str] | None, typer.Option("--fail-if", metavar="CONDITION", help=_FAIL_IF)]
_Width = Annotated[float, arg.probability("Level of the intervals.")]


def threshold(
    file: _File,
    accuracy: Annotated[str, typer.Option(metavar="P", help="The accuracy of answers above it: 0.95 or 95%.")],
    model: _Model = None,
    level: _Level = 0.9,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    prometheus: arg.Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Find the lowest confidence above which a model is accurate enough, with a guarantee.

    Use rows that the model was not fitted on. Exits with 3 if no threshold can be promised.

    Examples
    --------
    $ glayers threshold test.npz --accuracy 95%
    $ glayers threshold test.npz --accuracy 0.7 --model model.safetensors
    """
    rows = _read(file, reading, model)
    found = glayers.threshold(rows, accuracy=_share(accuracy), level=level, event=arg.event_of(event))
    _finish(found, as_json, prometheus, "threshold")
    arg.end_with([] if found.confidence is not None else ["no threshold"])


def decide(
    file: _File,
    costs: Annotated[Path, _COSTS],
    model: _Model = None,
    abstain: _Abstain = None,
    output: _Actions = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
) -> None:
    """Say what decisions of least expected cost really cost, compared with the best constant action.

    With --model, the costs of uncalibrated probabilities stand beside those of calibrated ones. With --output, write
    the action of each row, for which labels may be missing: a column of COSTS, counted from 0, or the next number to
    abstain.

    Examples
    --------
    $ glayers decide test.npz --costs costs.csv
    $ glayers decide test.npz --costs costs.csv --model model.safetensors
    $ glayers decide test.npz --costs costs.csv --abstain 0.4
    $ glayers decide test.npz --costs costs.csv -o actions.csv
    """
    if output is not None:
        if output.suffix.lower() != ".csv":
            raise typer.BadParameter(f"{output}: actions are written as text; give ACTIONS the ending .csv")
        arg.check_output(output, force, file, costs, model, reading.labels)
        rows = _read(file, reading, model, needs_labels=False)
        actions = glayers.decide(rows, _read_costs(costs), abstain=abstain)
        write_whole(output, "\n".join(["action", *map(str, actions), ""]).encode(), force=force)
        if as_json:
            show_json({"rows": len(actions), "output": str(output)})
        else:
            show(f"wrote the actions of {len(actions):,} rows to {output}")
        return
    policies = {"these probabilities": _read(file, reading, None)}
    if model is not None:
        policies = {"calibrated": _read(file, reading, model), "uncalibrated": policies["these probabilities"]}
    _finish(glayers.realised_costs(policies, _read_costs(costs), abstain=abstain, random_state=seed), as_json)


def estimate(
    file: Annotated[Path, arg.file_argument("FILE", "New rows; labels are not needed.")],
    model: Annotated[Path, arg.file_option("MODEL", "A file from `glayers fit`.")],
    costs: Annotated[Path | None, _COSTS] = None,
    abstain: _Abstain = None,
    level: _Width = 0.9,
    fail_if: _FailIf = None,
    reading: Reading = arg.READING,
    prometheus: arg.Prometheus = None,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Estimate accuracy, precision, recall and costs of rows without labels, with intervals.

    Rows that differ from the calibration rows in more than their class frequencies are refused. If the file has up to
    100 groups, each gets an estimate of its own. Keep the output of --json: once labels are known,
    `glayers score --estimate` says how good the estimate was.

    Examples
    --------
    $ glayers estimate new.csv --model model.safetensors
    $ glayers estimate new.csv --model model.safetensors --json
    """
    from glayers.decisions.estimate import ESTIMATED

    conditions = [condition_of(text, ESTIMATED) for text in fail_if or ()]
    options: dict[str, Any] = {"abstain": abstain, "level": level, "random_state": seed}
    try:
        if costs is not None:
            options["costs"] = _read_costs(costs)
        rows = arg.read_rows(file, reading, needs_labels=False)
        found = glayers.estimate(arg.calibrator_of_classes(model), rows, **options)
        failed = failures_of(conditions, found.scores())
    except GlayersError:
        arg.write_prometheus(prometheus, {"refused": True}, "estimate")  # instead of numbers of older rows
        raise
    of_groups = {name: group.accuracy.value for name, group in found.groups.items()}
    more = {"lowest_f1": found.scores().get("lowest_f1"), "group_accuracy": of_groups}
    arg.write_prometheus(prometheus, found.to_dict() | more, "estimate")  # first: an error prints JSON of its own
    facts = run_facts(file=file, model=model) | {"conditions": fail_if or [], "failed": failed}
    show_record(found, as_json, verdict="failed" if failed else "estimated", **facts)
    arg.end_with(failed)


def watch(
    model: arg.Model,
    batch: Annotated[Path, arg.file_argument("BATCH", f"New rows with labels. {arg.PREDICTIONS}")],
    state: Annotated[Path, typer.Option(metavar="STATE", help=_STATE)],
    alpha: Annotated[float, typer.Option(metavar="P", min=1e-6, max=0.5, help=_ALPHA)] = 0.01,
    accuracy: Annotated[str | None, typer.Option(metavar="P", help=_PROMISE)] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FIGURE", help=_PLOT)] = None,
    reading: Reading = arg.READING,
    prometheus: arg.Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Count a batch with labels, and raise an alarm once the model is no longer calibrated.

    Call it once per batch. A model that stays calibrated raises an alarm with a probability of at most --alpha, however
    many batches there are. Exits with 3 from the alarm on. The same file counts only once: one with the name, the time
    of change and the rows of an earlier batch changes nothing.

    Examples
    --------
    $ glayers watch model.safetensors test.npz --state state.json
    $ glayers watch model.safetensors test.npz --state a.json --accuracy 60%
    $ glayers watch model.safetensors test.npz --state b.json --plot wealth.png
    """
    promise = None if accuracy is None else _share(accuracy)
    if plot is not None:
        if plot.suffix.lower() not in _DATED:
            raise typer.BadParameter(f"{plot}: the ending must be one of {', '.join(_DATED)}")
        arg.check_output(plot, True, model, batch, state)
    rows = _read(batch, reading, model)
    name = f"{batch.name} {batch.stat().st_mtime_ns}"  # few rows of a later file may be the same
    found = glayers.watch(rows, state, alpha=alpha, accuracy=promise, name=name)
    if plot is not None:
        from glayers.report.plots import watch_figure  # slow to import

        image = io.BytesIO()
        ending = plot.suffix.lower()
        watch_figure(found).savefig(image, format=ending[1:], metadata={_DATED[ending]: None})
        write_whole(plot, image.getvalue())
    _finish(found, as_json, prometheus, "watch")
    arg.end_with(["alarm"] if found.alarm else [])


def card(
    model: arg.Model,
    test: Annotated[Path, arg.file_argument("TEST", f"Rows that were not fitted on. {arg.PREDICTIONS}")],
    accuracy: Annotated[str, typer.Option(metavar="P", help="The accuracy of the threshold: 0.95 or 95%.")] = "95%",
    reading: Reading = arg.READING,
) -> None:
    """Write the calibration section of a model card, as Markdown.

    It says how the model was calibrated, how large the gap is, whether a test finds an error, from which confidence on
    answers are accurate enough, and where the numbers do not hold.

    Examples
    --------
    $ glayers card model.safetensors test.npz
    $ glayers card model.safetensors test.npz --accuracy 80%
    """
    calibrator = arg.calibrator_of_classes(model)
    rows: Any = arg.read_rows(test, reading)
    show(*glayers.model_card(calibrator, rows, accuracy=_share(accuracy)).splitlines())


def _read(file: Path, reading: Reading, model: Path | None, needs_labels: bool = True) -> Any:
    """Read rows, and calibrate them if there is a model."""
    rows = arg.read_rows(file, reading, needs_labels)
    return rows if model is None else glayers.load(model).apply(rows)


def _read_costs(path: Path) -> Any:
    """Return the numbers of a small table without a header."""
    with errors_as_bad_file(path), open_regular(path) as stream:
        try:
            with warnings.catch_warnings(action="error"):  # NumPy warns of an empty file
                return np.loadtxt(stream, delimiter=",", ndmin=2, encoding="utf-8-sig")
        except (UserWarning, ValueError) as error:
            raise BadFile(f"{error}; write one line per class with the same number of costs, and no header") from error


def _share(text: str) -> float:
    """Return the accuracy that an option states.

    >>> _share("95%"), _share("0.9")
    (0.95, 0.9)
    """
    share = arg.number_of(text)
    if not 0 < share < 1:
        raise typer.BadParameter(f"--accuracy must lie between 0 and 1, or be such as 95%; got {text!r}")
    return share


def _finish(found: Any, as_json: bool, prometheus: Path | None = None, what: str = "") -> None:
    """Write a result for Prometheus if asked to, and print it: in this order, as an error prints JSON of its own."""
    arg.write_prometheus(prometheus, found.to_dict(), what)
    show_record(found, as_json)
