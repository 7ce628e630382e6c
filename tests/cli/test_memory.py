"""Memory does not grow with the number of rows: commands run under a limit that reading all rows would exceed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glayers import TemperatureScaling

LIMITED = """
import resource, sys
from pathlib import Path
from glayers.cli import scoring
from glayers.cli import app
from glayers.predictions import source
source.LARGE_FILE, source.CHUNK_ENTRIES, scoring._TESTED_ROWS = 0, 2**18, 500  # every file is large
from typer.testing import CliRunner
def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.stderr)
folder = Path(sys.argv[1])
for name in ("small", "large"):
    if name == "large":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]),) * 2)
    files = (folder / f"{name}.npy", "--labels", folder / f"{name}-labels.npy")
    run("score", *files)
    run("apply", folder / "m.safetensors", folder / f"{name}.npy", "-o", folder / f"{name}-out")
print("done")
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_score_and_apply_stay_within_a_limit_below_the_size_of_the_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4_000, 50)).astype(np.float32) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    for name, times in (("small", 1), ("large", 40)):  # the large one holds 32 MB
        with (tmp_path / f"{name}.npy").open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (len(z) * times, 50)}
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(times):
                file.write(z.tobytes())
        np.save(tmp_path / f"{name}-labels.npy", np.tile(labels, times))
    TemperatureScaling().fit(z, labels).save(tmp_path / "m.safetensors")
    # In memory, calibrated logits and probabilities alone would take 128 MB.
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), str(140 * 2**20)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr[-2_000:]
