"""`threshold`, `decide`, `estimate`, `watch` and `card`: what somebody does with the probabilities of a file."""

import warnings
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import glayers
from glayers.cli import arguments as arg
from glayers.cli.scoring import condition_of, failures_of, needed_groups
from glayers.errors import BadFile, BadPredictions, listed
from glayers.files import errors_as_bad_file, open_regular
from glayers.metrics import positive
from glayers.predictions.contents import Reading
from glayers.text_tables import plural

COSTS = arg.file_option("COSTS", "A table of costs (.csv) without a header: one line per class, one column per action.")
_ALPHA = "The highest probability of a false alarm, over all batches together."
_STATE = "The state file, which keeps what earlier batches showed; the first batch creates it."
_PROMISE = "Also raise an alarm once the batches show an accuracy below this: 0.9 or 90%."
_FAIL_IF = 'Exit with status 3 if it holds, such as "accuracy < 90 %"; also auroc, lowest_f1 and cost; may be repeated.'

_File = Annotated[Path, arg.file_argument("FILE", arg.PREDICTIONS)]
_Model = Annotated[Path | None, arg.file_option("MODEL", "A file from `glayers fit`: calibrate the rows first.")]
Abstain = Annotated[float | None, typer.Option(metavar="COST", help="The cost of abstaining, as one more action.")]


def threshold(
    file: _File,
    accuracy: Annotated[str, typer.Option(metavar="P", help="The accuracy of answers above it: 0.95 or 95%.")],
    model: _Model = None,
    level: Annotated[float, arg.probability("The probability with which the guarantee holds.")] = 0.9,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    prometheus: arg.Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Find the lowest confidence above which a model is accurate enough, with a guarantee.

    Use rows that the model was not fitted on. Exits with status 3 if no threshold can be promised.

    Examples
    --------
    $ glayers threshold test.npz --accuracy 95%
    $ glayers threshold test.npz --accuracy 0.7 --model model.safetensors
    """
    rows, chosen = _read(file, reading, model), arg.event_of(event)
    if isinstance(rows, glayers.MultiLabelPredictions):
        by_label = rows.by_label()
        if chosen.kind != "class":
            arg.show_note(f"note: pooled over {plural(len(by_label), 'label')}; --event label:NAME finds that of one")
        elif str(chosen.which) in by_label:
            rows, chosen = by_label[str(chosen.which)], positive()
        else:
            raise BadPredictions(f"no label {str(chosen.which)!r} has rows; there are {listed(by_label)}")
    found = glayers.threshold(rows, accuracy=_share(accuracy), level=level, event=chosen)
    failed = ["no threshold"] if found.confidence is None else []
    _finish(found, "found", failed, as_json, prometheus, file=file, model=model)


def decide(
    file: _File,
    costs: Annotated[Path, COSTS],
    model: _Model = None,
    abstain: Abstain = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Choose the action with the least expected cost for each row, and print what these actions really cost.

    They are compared with the best constant action: the single action that costs least if all rows get it. With
    --model, the costs of uncalibrated probabilities stand beside those of calibrated ones. `apply --costs` writes the
    action of each row.

    Examples
    --------
    $ glayers decide test.npz --costs costs.csv
    $ glayers decide test.npz --costs costs.csv --model model.safetensors
    $ glayers decide test.npz --costs costs.csv --abstain 0.4
    """
    policies = {"these probabilities": arg.read_rows(file, reading)}
    if model is not None:
        policies = {"calibrated": _read(file, reading, model), "uncalibrated": policies["these probabilities"]}
    found = glayers.realised_costs(policies, read_costs(costs), abstain=abstain, random_state=seed)
    _finish(found, "compared", [], as_json, None, file=file, model=model)


def estimate(
    file: Annotated[Path, arg.file_argument("FILE", "New rows; labels are not needed.")],
    model: Annotated[Path, arg.file_option("MODEL", "A file from `glayers fit`.")],
    costs: Annotated[Path | None, COSTS] = None,
    abstain: Abstain = None,
    level: Annotated[float, arg.probability("Level of the intervals.")] = 0.9,
    fail_if: Annotated[list[str] | None, typer.Option(metavar="CONDITION", help=_FAIL_IF)] = None,
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
    table = None if costs is None else read_costs(costs)
    rows = arg.read_rows(file, reading, needs_labels=False)
    calibrator = arg.calibrator_of_classes(model)
    found = glayers.estimate(calibrator, rows, costs=table, abstain=abstain, level=level, random_state=seed)
    failed = failures_of(conditions, found.scores())
    _finish(found, "estimated", failed, as_json, prometheus, file=file, model=model, fail_if=fail_if)


def watch(
    model: arg.Model,
    batch: Annotated[Path, arg.file_argument("BATCH", f"New rows with labels. {arg.PREDICTIONS}")],
    state: Annotated[Path, typer.Option(metavar="STATE", help=_STATE)],
    alpha: Annotated[float, typer.Option(metavar="P", min=1e-6, max=0.5, help=_ALPHA)] = 0.01,
    accuracy: Annotated[str | None, typer.Option(metavar="P", help=_PROMISE)] = None,
    reading: Reading = arg.READING,
    prometheus: arg.Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Add a labelled batch, and raise an alarm once the model is no longer calibrated.

    Call it once per batch. A model that stays calibrated raises an alarm with a probability of at most --alpha, however
    many batches there are; one that was fitted on few rows is a little off, which many batches show. Exits with status
    3 from the alarm on. The same rows count only once; of fewer than 50 rows, the same file with its time of change.

    Examples
    --------
    $ glayers watch model.safetensors test.npz --state state.json
    $ glayers watch model.safetensors test.npz --state a.json --accuracy 60%
    """
    promise = None if accuracy is None else _share(accuracy)
    rows = _read(batch, reading, model)
    name = f"{batch.name} {batch.stat().st_mtime_ns}"  # few rows of a later file may be the same
    digest = sha256(model.read_bytes()).hexdigest()
    found = glayers.watch(rows, state, alpha=alpha, accuracy=promise, name=name, model=digest)
    files = {"model": model, "batch": batch, "state": state}
    _finish(found, "no alarm", ["alarm"] if found.alarm else [], as_json, prometheus, **files)


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
    section = glayers.model_card(calibrator, arg.read_rows(test, reading), accuracy=_share(accuracy))
    arg.show(*section.splitlines())


def _read(file: Path, reading: Reading, model: Path | None) -> Any:
    """Read rows, and calibrate them if there is a model."""
    if model is None:
        return arg.read_rows(file, reading)
    calibrator: Any = glayers.load(model)
    reading, last = needed_groups(calibrator, reading)
    return last(calibrator.apply(arg.read_rows(file, reading)))


def read_costs(path: Path) -> Any:
    """Return the numbers of a small table without a header."""
    with errors_as_bad_file(path), open_regular(path) as stream, warnings.catch_warnings():
        try:
            warnings.simplefilter("error")  # NumPy warns of an empty file
            return np.loadtxt(stream, delimiter=",", ndmin=2, encoding="utf-8-sig")
        except (UserWarning, ValueError) as error:
            raise BadFile("is no table of costs: write one line per class, equally many numbers, no header") from error


def _share(text: str) -> float:
    """Return the accuracy that an option states.

    >>> _share("95%"), _share("0.9")
    (0.95, 0.9)
    """
    share = arg.number_of(text)
    if not 0 < share < 1:
        raise typer.BadParameter(f"--accuracy must lie between 0 and 1, or be such as 95%; got {text!r}")
    return share


def _finish(found: Any, verdict: str, failed: list[str], as_json: bool, prometheus: Path | None, **given: Any) -> None:
    """Write and print a result, as JSON with what identifies the run, and end with status 3 if anything failed."""
    # First: an error prints JSON of its own.
    arg.write_prometheus(prometheus, found.to_dict(), type(found).__name__.lower())
    arg.show_record(found, as_json, verdict="failed" if failed else verdict, failed=failed, **arg.run_facts(**given))
    arg.end_with(failed)
