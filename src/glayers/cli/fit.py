"""Rows with labels -> a fitted calibrator in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glayers.cli.inputs import name_of, read_calibration
from glayers.cli.options import AsJson, Calibration, Force, Labels, Method, Part, Quiet, Seed
from glayers.cli.outputs import Output
from glayers.cli.screen import page, show, show_json, title, waiting_for
from glayers.cli.threads import enough_threads
from glayers.cli.verb import verb

if TYPE_CHECKING:
    from glayers.calibrators import Calibrator


@verb(
    "glayers fit calibration.npz -o model.safetensors",
    "glayers fit calibration.csv -o model.safetensors -m temperature --force",
    "glayers fit logits.npy --labels labels.npy -o model.safetensors --json",
)
def fit(
    calibration: Calibration,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the calibrator.")],
    method: Method = "auto",
    labels: Labels = None,
    part: Part = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a calibrator on held-out predictions and write it to a file.

    The rows must be ones the network was not trained on. Of a file with two parts, the part calibration is used.
    """
    target = Output(output, force, (calibration, *([] if labels is None else [labels])))
    target.check()
    rows = read_calibration(calibration, labels, part)
    calibrator = unfitted(method, seed, progress=False if quiet else None)
    has_a_bar = "progress" in calibrator.get_params()
    with enough_threads([method], rows), waiting_for(f"fitting {method} on {len(rows):,} rows", quiet or has_a_bar):
        calibrator.fit_predictions(rows)
    target.check()
    calibrator.save(output)
    report = _report(calibrator)
    facts = calibrator.diagnostics_
    if as_json:
        found = {"method": method, "seed": seed, "output": str(output), "classes": rows.n_classes}
        show_json({**found, "diagnostics": facts.to_dict(), "report": report})
    elif not quiet:
        show(
            title(f"{method}, fitted on {facts.rows:,} rows of {rows.n_classes:,} classes from {name_of(calibration)}"),
            f"learned {facts.n_parameters:,} number{'s'[: facts.n_parameters != 1]} in {facts.seconds:.2g} s; "
            f"mean loss on these rows {facts.loss_before:.4f} before, {facts.loss_after:.4f} after",
            *([] if report is None else [page(report)]),
            f"wrote {output}",
        )


def unfitted(method: str, seed: int, *, progress: bool | None) -> "Calibrator":
    """Return a calibrator by name, with the seed and the bar that were asked for where it takes them."""
    from glayers.calibrators import CALIBRATORS

    made = CALIBRATORS[method]()
    chosen = {"random_state": seed, "progress": progress}
    return made.set_params(**{name: value for name, value in chosen.items() if name in made.get_params()})


def _report(calibrator: "Calibrator") -> str | None:
    """What the automatic choice has to say; others made no choice."""
    from glayers.calibrators import AutoCalibrator

    return calibrator.report_ if isinstance(calibrator, AutoCalibrator) else None
