"""`threshold`, `decide`, `estimate` and `watch`: what somebody does with the probabilities of a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from glayers.cli import arguments as arg
from glayers.cli.runtime import show, show_json, verb
from glayers.errors import BadFile, BadPredictions
from glayers.files import errors_as_bad_file, open_regular
from glayers.predictions.contents import Reading, Rows

_MODEL = "A file from `glayers fit`: calibrate the rows first."
_PROMETHEUS = "Also write the numbers as a Prometheus text file, for the collector of a node exporter."
_LARGEST_COSTS = 2**26  # bytes: 1,000 classes and as many actions take a tenth
_COSTS = "A table of costs (.csv) without a header: one line per class, one column per action."

_Model = Annotated[Path | None, typer.Option(metavar="MODEL", readable=False, help=_MODEL)]
_Level = Annotated[float, typer.Option(metavar="P", min=0.5, max=0.9999, help="The certainty of the answer.")]
_Prometheus = Annotated[Path | None, typer.Option("--prometheus", metavar="FILE", help=_PROMETHEUS)]
_Costs = Annotated[Path | None, typer.Option(metavar="COSTS", readable=False, help=_COSTS)]
_Abstain = Annotated[float | None, typer.Option(metavar="COST", help="The cost of abstaining, as one more action.")]


@verb
def threshold(
    file: Annotated[Path, arg.file_argument("FILE", arg.PREDICTIONS)],
    accuracy: Annotated[str, typer.Option(metavar="P", help="The accuracy of answers above it: 0.95 or 95%.")],
    model: _Model = None,
    level: _Level = 0.9,
    reading: Reading = arg.READING,
    event: arg.EventName = "top",
    prometheus: _Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Find the lowest confidence above which a model is accurate enough, with a guarantee.

    Use rows that the model was not fitted on. Exits with 3 if no threshold can be promised.

    Examples
    --------
    $ glayers threshold test.npz --accuracy 95%
    $ glayers threshold test.npz --accuracy 0.7 --model model.safetensors
    """
    from glayers.decisions.threshold import threshold as find

    rows = _read(file, reading, model)
    found = find(rows, accuracy=_share(accuracy, "--accuracy"), level=level, event=arg.event_of(event))
    _finish(found, as_json, prometheus, "threshold")
    if found.confidence is None:
        arg.end_with(["no threshold"])


@verb
def decide(
    file: Annotated[Path, arg.file_argument("FILE", arg.PREDICTIONS)],
    costs: Annotated[Path, typer.Option(metavar="COSTS", readable=False, help=_COSTS)],
    model: _Model = None,
    abstain: _Abstain = None,
    reading: Reading = arg.READING,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Say what decisions of least expected cost really cost, beside the best constant action.

    With --model, the costs of uncalibrated probabilities stand beside those of calibrated ones.

    Examples
    --------
    $ glayers decide test.npz --costs costs.csv
    $ glayers decide test.npz --costs costs.csv --model model.safetensors
    """
    from glayers.decisions.costs import realised_costs

    before = _read(file, reading, None)
    policies = {"these probabilities": before}
    if model is not None:
        policies = {"calibrated": _read(file, reading, model), "uncalibrated": before}
    _finish(realised_costs(policies, _read_costs(costs), abstain=abstain, random_state=seed), as_json)


@verb
def estimate(
    file: Annotated[Path, arg.file_argument("FILE", "New rows; labels are not needed.")],
    model: Annotated[Path, typer.Option(metavar="MODEL", readable=False, help="A file from `glayers fit`.")],
    costs: _Costs = None,
    abstain: _Abstain = None,
    level: _Level = 0.9,
    fail_if: arg.FailIf = None,
    reading: Reading = arg.READING,
    prometheus: _Prometheus = None,
    seed: arg.Seed = 0,
    as_json: arg.AsJson = False,
) -> None:
    """Estimate accuracy, precision, recall and costs of rows without labels, with intervals.

    Rows that differ from the calibration rows in more than their class frequencies are refused.

    Examples
    --------
    $ glayers estimate new.csv --model model.safetensors
    $ glayers estimate new.csv --model model.safetensors --json
    """
    from glayers.calibrators import load
    from glayers.cli.scoring import Condition
    from glayers.decisions.estimate import estimate as find
    from glayers.predictions.predictions import map_inputs, two_classes

    conditions = [Condition.of(text) for text in fail_if or ()]
    calibrator = load(model)
    source = arg.source_of([file], reading, calibrator.inputs)
    rows = arg.only_or("test", arg.read_parts(source, needs_labels=False, warn=False)).rows
    if rows.weights is not None or rows.counts is not None:
        raise BadPredictions("estimate takes rows of equal weight; remove weights and counts from the file")
    inputs = map_inputs(calibrator.inputs, two_classes(calibrator.inputs, rows))
    price = None
    if costs is not None:
        price = _read_costs(costs)
    found = find(calibrator, inputs, groups=rows.groups, costs=price, abstain=abstain, level=level, random_state=seed)
    _finish(found, as_json, prometheus, "estimate")
    scores = {"accuracy": found.accuracy.value, "auroc": found.auroc.value}
    failures = [condition.failure(scores) for condition in conditions]
    arg.end_with([failure for failure in failures if failure is not None])


@verb
def watch(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    batch: Annotated[Path, arg.file_argument("BATCH", f"New rows with labels. {arg.PREDICTIONS}")],
    state: Annotated[Path, typer.Option(metavar="STATE", help="What was seen so far; made by the first batch.")],
    alpha: Annotated[
        float | None,
        typer.Option(metavar="P", min=1e-6, max=0.5, help="How likely a false alarm may be, ever; 0.01 by default."),
    ] = None,
    accuracy: Annotated[str | None, typer.Option(metavar="P", help="Also watch a promised accuracy.")] = None,
    reading: Reading = arg.READING,
    prometheus: _Prometheus = None,
    as_json: arg.AsJson = False,
) -> None:
    """Count a batch with labels, and raise an alarm once the model is no longer calibrated.

    May be called for every batch: a model that stays calibrated raises an alarm with a probability of at most P, ever.
    Exits with 3 after an alarm. A batch that was counted before changes nothing.

    Examples
    --------
    $ glayers watch model.safetensors test.npz --state state.json
    $ glayers watch model.safetensors test.npz --state b.json --accuracy 60%
    """
    from glayers.decisions.watch import watch as count

    promise = None
    if accuracy is not None:
        promise = _share(accuracy, "--accuracy")
    found = count(_read(batch, reading, model), state, alpha=alpha, accuracy=promise, name=batch.name)
    _finish(found, as_json, prometheus, "watch")
    if found.alarm:
        arg.end_with(["alarm"])


def _read(file: Path, reading: Reading, model: Path | None) -> Rows:
    """Read labelled rows, and calibrate them if there is a model."""
    from glayers.calibrators import load

    if model is None:
        return arg.only_or("test", arg.read_parts(arg.source_of([file], reading))).rows
    calibrator = load(model)
    source = arg.source_of([file], reading, calibrator.inputs)
    return calibrator.apply(arg.only_or("test", arg.read_parts(source, warn=False)).rows)


def _read_costs(path: Path) -> list[list[float]]:
    """Return the numbers of a small table without a header."""
    with errors_as_bad_file(path), open_regular(path) as stream:
        lines = stream.read(_LARGEST_COSTS).decode("utf-8-sig").splitlines()
    try:
        table = [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
    except ValueError as error:
        raise BadFile(f"{path}: {error}; write numbers with commas between them, and no header") from error
    if not table or len({len(line) for line in table}) > 1:
        raise BadFile(f"{path}: must have one line per class, and the same number of costs in each")
    return table


def _share(text: str, option: str) -> float:
    """Return a share that an option states.

    >>> _share("95%", "--accuracy"), _share("0.9", "--accuracy")
    (0.95, 0.9)
    """
    number = text.strip().removesuffix("%")
    try:
        value = float(number)
    except ValueError as error:
        raise typer.BadParameter(f"{option} must be a number such as 0.95 or 95%; got {text!r}") from error
    if text.strip().endswith("%"):
        value /= 100
    if not 0 < value < 1:
        raise typer.BadParameter(f"{option} must lie between 0 and 1, or be a percentage such as 95%; got {text!r}")
    return value


def _finish(found: Any, as_json: bool, prometheus: Path | None = None, what: str = "") -> None:
    """Print a result, and write it for Prometheus if asked to."""
    if as_json:
        show_json(found.to_dict())
    else:
        show(*str(found).splitlines())
    if prometheus is not None:
        arg.Output(prometheus, force=True).write(prometheus_text(found.to_dict(), what).encode())


def prometheus_text(numbers: dict[str, Any], what: str) -> str:
    r"""Return the numbers of a result in the text format of Prometheus; names of nested results become labels.

    >>> print(prometheus_text({"alarm": False, "log_wealth": {"class 1": 0.5}}, "watch"), end="")
    glayers_watch_alarm 0.0
    glayers_watch_log_wealth{name="class 1"} 0.5
    """
    lines = []
    for key, value in numbers.items():
        nested = value if isinstance(value, dict) else {"": value}
        for name, number in nested.items():
            if isinstance(number, bool | int | float):
                escaped = str(name).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                label = f'{{name="{escaped}"}}' if isinstance(value, dict) else ""
                lines.append(f"glayers_{what}_{key}{label} {float(number)!r}")
    if not lines:
        raise BadPredictions("there is no number to write")
    return "\n".join(lines) + "\n"
