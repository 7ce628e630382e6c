"""Odd command lines on good and bad files: each ends with a documented status, and with one line for an error."""

import contextlib
import io
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from glayers import TemperatureScaling
from tests.cli.conftest import overconfident
from tests.cli.running import run
from tests.fuzz.mutations import ODD_CELLS, Random, damaged, pick
from tests.fuzz.readers import GOOD_FILES

VERBS = ["fit", "apply", "score", "compare", "report", "methods", "nothing", "score", "apply", "fit"]
VERBS += ["adapt", "card", "decide", "estimate", "export", "info", "rows", "threshold", "watch"]
METHODS = ["temperature", "vector,none", "isotonic", "platt", "histogram", "all ", ",", "temperature,temperature", "x"]
FIGURES = ["reliability", "ks", "classes", "differences", "no figure"]
OPTIONS = [
    *("--json", "--force", "--intervals", "--help", "--none", "-x", "--"),
    *("--probabilities", "--by-group", "--all", "--differences", "--fail-if-miscalibrated", "--fail-if-shifted", "-v"),
    *("--sets", "--set", "--prior", "--options", "--stated", "--estimate"),
    *("--fail-if", "--level", "--abstain", "--model", "--state", "--alpha", "--accuracy", "--costs", "--prometheus"),
    *("--part", "--labels", "--event", "--seed", "--method", "--methods", "--width", "--resamples", "-o"),
]
VALUES = [
    *(
        "val",
        "test",
        "labels.npy",
        "top",
        "rank:2",
        "rank:0",
        "within-top:99",
        "label:a",
        "one-of:1,2",
        "one-of:",
    ),
    *("percent", "a=0.5,b=2", "A,B", "n_folds=2", "strength=nan", "model.safetensors"),
    *("ks > 0.1", "ks > 3", "accuracy < 1e-400", "nll > inf", "0.5", "95%", "1e308", "nan"),
    *("0", "-1", "7", "99999999999999999999", "1e3", "npz", "csv", "json", "parquet", "exe", "out.csv", "out.npz", "-"),
    *("no/such/folder/x.csv", "a.csv", "\x1b[31m", "\ud800", *ODD_CELLS[:12], *METHODS),
]


@cache
def model() -> bytes:
    """Return a fitted calibrator's file, of four classes."""
    path = Path("model.safetensors")
    TemperatureScaling().fit(*overconfident(60, 0)).save(path)
    return path.read_bytes()


def check_command(random: Random, folder: Path) -> str:
    """Run one command line in a folder of good and damaged files."""
    with contextlib.chdir(folder):
        Path("model.safetensors").write_bytes(model())
        logits, labels = overconfident(20, 1)
        np.savez("both.npz", z_val=logits, y_val=labels, z_test=logits + 1, y_test=labels)
        np.savez("good.npz", logits=logits, labels=labels)
        np.save("labels.npy", labels[:6])
        Path("costs.csv").write_text("0,1,1,1\n5,0,1,1\n1,1,0,1\n1,1,1,0\n")
        names = [str(pick(list(GOOD_FILES), random)) for _ in range(2)]
        for name in names:
            good = random.random() < 0.5
            Path(name).write_bytes(GOOD_FILES[name] if good else damaged(GOOD_FILES[name], model(), random))
        words = command(names, random)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "1")
            with contextlib.redirect_stderr(io.StringIO()):
                done = run(*words)
        if done.exit_code not in (0, 1, 2, 3) or isinstance(done.exception, Exception):
            raise AssertionError(f"{words}: {done.exit_code}, {done.stderr}") from done.exception
        if done.exit_code == 1:
            problems = [line for line in done.stderr.splitlines() if line.startswith("glayers: ")]
            assert len(problems) == 1, (words, done.stderr)
        for path in Path().glob(".*.unfinished"):
            raise AssertionError(f"{words} left {path}")
        for path in list(Path().iterdir()):
            if path.is_dir():  # of several files, `apply` makes a directory
                shutil.rmtree(path)
            else:
                path.unlink()
    return f"status {done.exit_code}"


def command(names: list[str], random: Random) -> list[str]:
    """Return the words of one command: a sensible beginning, then options and values at random."""
    verb, (first, second) = pick(VERBS, random), names
    files = [first, "both.npz", second, "good.npz", "good.npz", "model.safetensors", "missing.npz", "."]
    output = pick(["out.csv", "out.npz", "out.json", "out.parquet", "out.png", "out.svg", "out", first], random)
    words = {
        "fit": [pick(files, random), "-o", output, "-m", pick(METHODS, random)],
        "apply": [pick(["model.safetensors", first], random), pick(files, random), "-o", output],
        "score": [pick(files, random)],
        "compare": [pick(files, random), pick(files, random), "--methods", pick(METHODS, random)],
        "report": [pick(files, random), pick(files, random), "-o", output, "--methods", "temperature"],
        "adapt": [pick(["model.safetensors", *files], random), pick(files, random), "-o", output],
        "card": [pick(["model.safetensors", *files], random), pick(files, random)],
        "decide": [pick(files, random), "--costs", pick([*files, "costs.csv"], random)],
        "estimate": [pick(files, random), "--model", pick(["model.safetensors", first], random)],
        "export": [pick(["model.safetensors", first], random), "-o", output],
        "info": [pick(files, random)],
        "rows": [pick(files, random), "-m", "temperature"],
        "threshold": [pick(files, random), "--accuracy", pick(["0.5", "95%", *VALUES], random)],
        "watch": ["model.safetensors", pick(files, random), "--state", pick(["state.json", *files], random)],
    }.get(verb, [])
    for _ in range(random.choice([0, 0, 0, 1, 2, 3])):
        place = int(random.integers(len(words) + 1))
        words[place:place] = (
            [pick(OPTIONS, random)] if random.random() < 0.4 else [pick(OPTIONS, random), pick(VALUES, random)]
        )
    return [verb, *words]
