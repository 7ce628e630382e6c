"""Most verbs: `fit`, `apply`, `compare`, `report`, `demo` and the list of `methods`.

`fit` writes a calibrator to a file; `apply` reads it and writes calibrated rows. `compare`, `report` and `demo` put
methods side by side, in a table and in an HTML report.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glayers.activations import probabilities_of
from glayers.cli import arguments as arg
from glayers.cli import many_files, multi_label
from glayers.cli.runtime import (
    flag,
    screen_width,
    show,
    show_json,
    show_note,
    suitable_threads,
    title,
    verb,
    waiting_for,
)
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadFile, BadPredictions, GlayersError
from glayers.metrics import METRICS, Scorecard
from glayers.predictions import Confidences, Predictions
from glayers.predictions.contents import Contents, listed
from glayers.predictions.formats import WRITERS, read_contents, to_bytes
from glayers.report import tables
from glayers.serving.predictor import LabelPredictor

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator
    from glayers.comparison import Comparison

_FORMAT = "npz, csv, tsv, parquet or json; by default the ending of OUT decides, and a pipe gets csv."
_OUT = ".npz, .csv, .tsv, .parquet, .json or -; for many files a directory, which gets Parquet files."
_FORMATS = [ending[1:] for ending in WRITERS]
_DEMO = "Fashion-MNIST sample (glayers demo)"


@verb
def fit(
    calibration: arg.Calibration,
    output: Annotated[Path, arg.output_option("MODEL", "Where to write the calibrator.")],
    method: arg.Method = "auto",
    settings: arg.Settings = None,
    labels: arg.Labels = None,
    part: arg.Part = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
    several_labels: multi_label.SeveralLabels = False,
    by_group: Annotated[bool, flag("--by-group", text="Also correct each group of rows, such as a site.")] = False,
    dask: arg.Dask = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The network must not have been trained on these rows. From a file with two parts, `fit` uses the calibration part.

    Examples
    --------
    $ glayers fit calibration.npz -o model.safetensors
    $ glayers fit calibration.csv -o model.safetensors -m temperature --force
    $ glayers fit logits.npy --labels labels.npy -o model.safetensors --json
    $ glayers fit calibration.npz -o fast.safetensors --set time_budget=60
    """
    from glayers.calibrators import METHODS, AutoCalibrator
    from glayers.calibrators.groups import GroupCalibrator
    from glayers.comparison import unfitted

    if by_group and (several_labels or dask is not None):
        raise typer.BadParameter("--by-group works without --several-labels and --dask")
    arg.known_name(method, METHODS, "method", "glayers methods")
    target = arg.Output(output, force, (calibration, labels))
    reading = (calibration, labels, part, probabilities, columns)
    calibrator = unfitted(method, random_state=seed, progress=False if quiet else None)
    chosen = arg.settings_of(settings, calibrator.get_params(False))
    if several_labels:
        contents = arg.only_or("calibration", arg.read_wanted(read_contents, *reading))
        multi_label.fit_each_label(contents, method, calibrator.set_params(**chosen), target, as_json, quiet)
        return
    if dask is not None:
        many_files.fit_on_cluster(calibrator, chosen, reading, seed, dask)
        target.check()
        calibrator.save(output)
        show(*([] if quiet else [f"fitted {method} on {calibrator.diagnostics_.rows:,} rows; wrote {output}"]))
        return
    rows, inputs = many_files.read_to_learn(*reading, seed, quiet)
    calibrator.set_params(**{"inputs": inputs, **chosen})
    has_a_bar = "progress" in calibrator.get_params()
    with suitable_threads([method], rows), waiting_for(f"fitting {method} on {len(rows):,} rows", quiet or has_a_bar):
        fitted: Any = (GroupCalibrator(calibrator) if by_group else calibrator).fit_predictions(rows)
    target.check()
    fitted.save(output)
    calibrator, shares = (fitted.common_, fitted.shares_) if by_group else (fitted, {})
    selection = calibrator.selection_ if isinstance(calibrator, AutoCalibrator) else None
    facts, name, n_classes = calibrator.diagnostics_, arg.name_of(calibration), len(calibrator.classes_)
    if as_json:
        found = {"method": method, "seed": seed, "output": str(output), "inputs": inputs, "classes": n_classes}
        found |= {"shares": shares} if by_group else {}
        show_json({**found, "diagnostics": facts.to_dict(), "selection": selection and selection.to_dict()})
    elif not quiet:
        by = "" if inputs == "logits" else f", by {inputs}"
        show(
            title(f"{method}, fitted on {facts.rows:,} rows of {n_classes:,} classes from {name}{by}"),
            f"learned {facts.n_parameters:,} parameter{'s'[: facts.n_parameters != 1]} in {facts.seconds:.2g} s; "
            f"mean loss on these rows: {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
            *([] if selection is None else [Text(str(selection))]),
            *(f"group {name}: its correction has a share of {share:.2f}" for name, share in shares.items()),
            f"wrote {output}",
        )


@verb
def apply(
    model: Annotated[Path, arg.file_argument("MODEL", "A file from `glayers fit`.")],
    files: Annotated[list[Path], arg.file_argument("FILE...", f"{arg.PREDICTIONS} {arg.MANY} Labels may be missing.")],
    output: Annotated[Path, arg.output_option("OUT", f"Where to write: {_OUT}")],
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", autocompletion=lambda: _FORMATS, help=_FORMAT)
    ] = None,
    logits: Annotated[bool, flag("--logits", text="Write calibrated logits instead of probabilities.")] = False,
    labels: arg.Labels = None,
    part: arg.Part = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
    dask: arg.Dask = None,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Calibrate predictions with a fitted calibrator and write the probabilities.

    Labels, weights, groups and class names of the input are written too. Many files, or one larger than 1 GB, are read
    in chunks, and OUT is a directory of Parquet files. If the command is interrupted, run it again: it goes on.

    Examples
    --------
    $ glayers apply model.safetensors test.npz -o calibrated.npz
    $ glayers apply model.safetensors new.csv -o calibrated.parquet
    $ glayers apply model.safetensors logits/ -o calibrated
    $ cat new.csv | glayers apply model.safetensors - -o - --format json
    """
    from glayers.loading import load

    file = files[0]
    if file.suffix == ".safetensors" != model.suffix:
        raise typer.BadParameter(f"the model comes first: glayers apply {file} {model}")
    if dask is not None or many_files.is_large(files):
        if file_format not in (None, "parquet") or output == arg.PIPE:
            raise typer.BadParameter("many rows become Parquet files in a directory: give -o its name, and no --format")
        _apply_to_many(files, model, output, (labels, part, probabilities, columns), logits, force, quiet, dask)
        return
    ending = f".{file_format}" if file_format else ".csv" if output == arg.PIPE else output.suffix.lower()
    if ending not in WRITERS:
        raise typer.BadParameter(f"cannot write {ending!r}; give OUT one of the endings {listed(WRITERS)}, or --format")
    target = None if output == arg.PIPE else arg.Output(output, force, (model, file, labels))
    calibrator: Any = load(model)
    if isinstance(calibrator, LabelPredictor):
        made = multi_label.read_and_apply(calibrator, file, logits, labels, part, probabilities, columns)
    else:
        parts = arg.read_for(calibrator, file, labels, part, probabilities, columns)
        made = {name: _calibrated(calibrator, *rows, logits) for name, rows in parts.items()}
    data = to_bytes(made, ending)
    if target is None:
        arg.write_to_pipe(data, text=ending not in (".npz", ".parquet"))
        return
    target.write(data)
    if not quiet:
        count = sum(len(rows) for rows in made.values())
        show(f"calibrated {count:,} rows of {arg.name_of(file)} with {arg.name_of(model)}; wrote {output}")


@verb
def methods(as_json: arg.AsJson = False) -> None:
    """List the methods: what each does, what it keeps unchanged, and whether fitting it needs torch.

    Examples
    --------
    $ glayers methods
    $ glayers methods --json
    """
    from glayers.calibrators import METHODS

    if as_json:
        show_json({name: {**vars(each), "settings": dict(each.settings)} for name, each in METHODS.items()})
        return
    table = Table("method", "summary", "keeps", box=None, pad_edge=False, header_style="bold")
    for name, each in METHODS.items():
        table.add_row(f"{name} *" if each.torch == "required" else name, each.summary, each.keeps)
    here = "installed" if find_spec("torch") else 'not installed: pip install "glayers[fit]"'
    show(table, "", f"* needs torch to fit ({here}). No method needs torch to predict.")


@verb
def compare(
    calibration: arg.Calibration,
    test: arg.Test = None,
    methods: arg.Methods = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML report.")] = None,
    differences: Annotated[bool, flag("--differences", text="Add differences of methods with intervals.")] = False,
    dask: arg.Dask = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    as_json: arg.AsJson = False,
    quiet: arg.Quiet = False,
) -> None:
    """Fit several methods on calibration rows; score them and the uncalibrated model on test rows.

    Examples
    --------
    $ glayers compare calibration.npz test.npz
    $ glayers compare both.npz --methods temperature,vector,isotonic --json
    $ glayers compare both.npz --methods temperature --report compared.html
    """
    wanted = arg.method_names(methods)
    target = None if report is None else arg.Output(report, force, (calibration, test))
    many = [path for path in (calibration, test) if path is not None and many_files.is_large([path])]
    if (many or dask) and test is None:
        why = "only small files that this machine reads have parts calibration and test"
        why = f"is a directory, and {why}" if calibration.is_dir() else why
        raise BadFile(f"{calibration}: {why}; give the test rows as a second argument, TEST")
    name, both = arg.name_of(test or calibration), (calibration, test or calibration)
    how: dict[str, Any] = {"page": target, "seed": seed, "quiet": quiet, "as_json": as_json, "differences": differences}
    if dask:
        found, learned = many_files.compare_on_cluster(both, wanted, probabilities, columns, seed, dask)
        _show_comparison(found, learned, name, **how)
        return
    if many:
        (fitted, inputs), (scored, _) = (
            many_files.read_to_learn(path, None, None, probabilities, columns, seed, quiet, part)
            for part, path in zip(("calibration", "test"), both, strict=True)
        )
        rows: arg.TwoParts = (fitted, scored)
    else:
        rows, inputs = arg.read_calibration_and_test(calibration, test, probabilities, columns)
    _compare(rows, name, wanted, inputs, **how)


@verb
def report(
    calibration: arg.Calibration,
    test: arg.Test = None,
    output: arg.Page = Path("report.html"),
    methods: arg.Methods = None,
    probabilities: arg.Probabilities = False,
    columns: arg.Columns = None,
    seed: arg.Seed = 0,
    force: arg.Force = False,
    quiet: arg.Quiet = False,
) -> None:
    """Compare methods and write the HTML report: one file with a summary, tables and interactive figures.

    Examples
    --------
    $ glayers report calibration.npz test.npz
    $ glayers report both.npz -o both.html --methods temperature,vector
    """
    options = {"methods": methods, "report": output, "seed": seed, "force": force, "quiet": quiet}
    options["probabilities"] = probabilities
    compare.run(calibration=calibration, test=test, columns=columns, **options)


@verb
def demo(
    output: arg.Page = Path("report.html"), seed: arg.Seed = 0, force: arg.Force = False, quiet: arg.Quiet = False
) -> None:
    """Compare seven methods on the sample data of the package, and write a report.

    It replaces the report of an earlier demo. Use --force to replace any other file.

    Examples
    --------
    $ glayers demo
    $ glayers demo --output first-look.html --quiet
    """
    own = output.is_file() and f"<title>{_DEMO}".encode() in output.read_bytes()[:4_096]
    target = arg.Output(output.resolve(), force or own)
    _compare(load_fashion_mnist(), _DEMO, None, "logits", page=target, seed=seed, quiet=quiet)


def _show_result(name: str, card: Scorecard, seconds: float) -> None:
    """Print one line for a method as soon as it is scored: others may take minutes."""
    scores = [
        f"{METRICS[each].short_label} {METRICS[each].format(card[each])}" for each in ("nll", "ks") if each in card
    ]
    show_note(f"{name}: {', '.join(scores)}, fitted in {seconds:.1f} s")


def _compare(rows: arg.TwoParts, name: str, methods: list[str] | None, inputs: str, **how: Any) -> None:
    """Fit and score the methods, and show what was found; `how` are the options of `_show_comparison`."""
    from glayers import comparison

    shown: dict[str, Any] = {"progress": False} if how["quiet"] else {"on_result": _show_result}
    with suitable_threads(methods or comparison.DEFAULT_METHODS, *rows):
        found = comparison.compare(*rows, methods, inputs=inputs, random_state=how["seed"], **shown)
    _show_comparison(found, rows[0], name, **how)


def _show_comparison(
    found: "Comparison",
    learned: Predictions | Confidences,
    name: str,
    page: arg.Output | None,
    seed: int,
    quiet: bool,
    as_json: bool = False,
    differences: bool = False,
) -> None:
    """Print a table or JSON, and write the page if one is asked for."""
    from glayers.report.findings import banners, data_checks

    if not found.calibrators:
        raise GlayersError(f"no method could be fitted; {'; '.join(f'{n}: {why}' for n, why in found.failed.items())}")
    between = found.differences(random_state=seed) if differences else None
    findings = banners(data_checks(found, learned))
    if as_json:
        tests = {name: test.to_dict() for name, test in found.calibration_tests.items()}
        numbers: dict[str, Any] = {"methods": found.to_dict(), "calibration_tests": tests, "notes": found.notes}
        numbers |= {"failed": found.failed, "left_out": found.left_out}
        numbers["findings"] = [check._asdict() for check in findings]
        show_json(numbers | ({} if between is None else {"differences": between.to_dicts()}))
    else:
        show(title(f"{name}: fitted on {len(learned):,} rows, scored on {found.n_scored:,}"))
        cards = found.scorecards
        show(tables.comparison_table(cards, found.seconds, Console(width=screen_width()).width), "")
        for method, answer in found.calibration_tests.items():
            show(f"{method}: {answer}", f"{method}: {tables.confidence_sentence(cards[method])}")
        for check in findings:
            show(f"attention: {check.subject}: {check.found}. {check.advice}.")
        if between is not None:
            show("", *str(between).splitlines())
        for line in () if quiet else found.remarks():
            show_note(f"note: {line}")
    if page is not None:
        page.check()
        settings: dict[str, Any] = {"random_state": seed, "title": name, "force": page.force}
        with suitable_threads((), learned, found.test):
            found.to_html(page.path, calibration=learned, progress=False if quiet else None, **settings)
        if not as_json:
            show("", f"wrote {page.path}: open it in a browser")


def _calibrated(calibrator: "Calibrator", given: Predictions | Confidences, labelled: bool, logits: bool) -> Contents:
    after = calibrator.apply(given)
    extras: dict[str, Any] = {name: getattr(given, name) for name in ("weights", "counts", "groups")}
    if isinstance(after, Confidences):
        if logits:
            raise BadPredictions("--logits is for predictions of classes; this file has a confidence per row")
        return Contents(confidence=after.confidence, correct=after.correct if labelled else None, **extras)
    # As precise as the input.
    kind = np.float32 if isinstance(given, Predictions) and given.logits.dtype == np.float32 else np.float64
    made = after.logits.astype(kind) if logits else probabilities_of(after.logits, kind)
    return Contents(
        logits=made if logits else None,
        probabilities=None if logits else made,
        labels=after.labels if labelled else None,
        class_names=after.class_names or calibrator.class_names_,
        **extras,
    )


def _apply_to_many(
    files: list[Path],
    model: Path,
    output: Path,
    reading: many_files.Reading,
    logits: bool,
    force: bool,
    quiet: bool,
    cluster: str | None,
) -> None:
    from glayers.loading import load

    calibrator = load(model)
    source = many_files.source_of(files, *reading, calibrator)
    made, shown = partial(_calibrated, calibrator, logits=logits), False if quiet else None
    written, before = many_files.apply_files(source, model, output, made, {"logits": logits}, force, shown, cluster)
    if not quiet:
        already = f"; {before:,} more were there already" if before else ""
        many = f"{len(source.files):,} file{'s'[: len(source.files) != 1]}"
        show(f"calibrated {written:,} rows of {many} with {arg.name_of(model)}{already}; wrote {output}")
