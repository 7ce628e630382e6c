"""The short version of `make fuzz`: every hand-made bomb, and some of the inputs."""

import os
import subprocess
import sys

import pytest


@pytest.mark.thorough
def test_inputs_and_every_bomb_are_handled() -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--inputs", "250", "--jobs", "1"]
    # Measuring coverage multiplies the processor time of each input, which is limited.
    untraced = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=untraced)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert ": 0 failed" in done.stdout
