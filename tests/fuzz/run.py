"""Seeded inputs -> whether each was handled: `make fuzz` runs 10,000 of them in processes that may hang or die.

Each input follows from the seed and its number alone: `python -m tests.fuzz.run --only 1234` repeats one. The
hand-made files of `bombs.py` have the numbers -1, -2 and so on. A worker
fails an input that raises anything but our own errors, that takes more than 5 s of processor time or 60 s by the
clock, or that needs more memory than `MEMORY` beyond the libraries themselves. The last lines name the slowest input,
and the peak of the memory that the inputs of one worker took.
"""

import argparse
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.bombs import BOMBS

SECONDS = 5  # of processor time, which a busy machine does not spend
SECONDS_BY_THE_CLOCK = 60  # for a wait that would never end
MEMORY = 2**30  # bytes that one input may take
MOST_UNPACKED = 2**27  # GLAYERS_MAX_BYTES in the workers: far more than any good input holds
KINDS = ("reader",) * 5 + ("artifact",) * 2 + ("command", "fit", "setting")


def work(seed: int, numbers: range) -> None:
    """Run inputs and print a line before and after each; whoever reads them knows which input a process died of."""
    import numpy as np

    from glayers.metrics import calibration_tests
    from tests.fuzz import artifacts, bombs, commands, fits, readers, settings

    checks = {
        "reader": readers.check_reader,
        "artifact": artifacts.check_artifact,
        "command": commands.check_command,
        "fit": fits.check_fit,
        "setting": settings.check_setting,
    }
    warnings.simplefilter("ignore")
    calibration_tests._DRAWS = 199  # commands test calibration with most scores, and damage no draw
    os.environ["GLAYERS_MAX_BYTES"] = str(MOST_UNPACKED)
    for name in artifacts.QUICK:
        artifacts.sound(name)  # fitted once, and not counted as part of an input
    limit_memory(MEMORY)
    first = peak_memory()
    faulthandler.register(signal.SIGPROF, chain=True)  # print where it hangs, then die of the signal
    with tempfile.TemporaryDirectory(prefix="glayers-fuzz-") as folder:
        for number in numbers:
            kind = KINDS[number % len(KINDS)] if number >= 0 else "bomb"
            print("begin", number, kind, flush=True)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            faulthandler.dump_traceback_later(SECONDS_BY_THE_CLOCK, exit=True)
            try:
                if number < 0:
                    outcome = bombs.check_bomb(-1 - number, Path(folder))
                else:
                    outcome = checks[kind](np.random.default_rng([seed, number]), Path(folder))
            except BaseException as error:
                outcome = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:300]}"
                traceback.print_exc()
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
            print("end", number, kind, time.process_time() - began, peak_memory() - first, outcome, flush=True)


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def limit_memory(extra: int) -> None:
    """Let this process take `extra` bytes more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Found(NamedTuple):
    """How often each outcome occurred, the most seconds with their input, and the peak of memory."""

    outcomes: Counter[str]
    slowest: tuple[float, str]
    memory: int


def supervise(seed: int, numbers: range) -> Found:
    """Run a worker, and another one after the input that ended it; count outcomes and print failures."""
    found: Counter[str] = Counter()
    slowest, memory = (0.0, ""), 0
    while len(numbers):
        current = None
        with tempfile.TemporaryFile("w+") as errors:
            program = [sys.executable, "-m", "tests.fuzz.run", "--seed", str(seed), "--worker"]
            command = [*program, *map(str, (numbers.start, numbers.stop, numbers.step))]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as worker:
                assert worker.stdout is not None
                for line in worker.stdout:
                    what, *rest = line.split(" ", 5)
                    if what == "begin":
                        current = int(rest[0]), rest[1].strip()
                    elif what == "end":
                        outcome = rest[4].strip()
                        slowest = max(slowest, (float(rest[2]), f"input {rest[0]}, {rest[1]}"))
                        memory = max(memory, int(rest[3]))
                        found[f"{rest[1]} {outcome.split(' ')[0] if outcome.startswith('FAILED') else outcome}"] += 1
                        if outcome.startswith("FAILED"):
                            print(f"input {rest[0]}, {rest[1]}: {outcome}", flush=True)
                        numbers, current = numbers[1:], None
            if worker.returncode == 0:
                break
            errors.seek(0)
            print(errors.read()[-3_000:])
            if current is None:
                raise RuntimeError(f"a worker ended with status {worker.returncode} between inputs")
            print(
                f"input {current[0]}, {current[1]}: FAILED, ended with {worker.returncode}: a hang or a crash",
                flush=True,
            )
            found[f"{current[1]} FAILED"] += 1
            numbers = numbers[1:]
    return Found(found, slowest, memory)


def main() -> int:
    """Run the inputs on all cores, print what happened, and return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", type=int, help="the number of one input")
    parser.add_argument("--worker", type=int, nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker or given.only is not None:
        work(given.seed, range(*given.worker) if given.worker else range(given.only, given.only + 1))
        return 0
    began = time.perf_counter()
    shares = [range(job - len(BOMBS), given.inputs, given.jobs) for job in range(given.jobs)]
    with ThreadPoolExecutor(given.jobs) as pool:
        parts = list(pool.map(lambda numbers: supervise(given.seed, numbers), shares))
    found = sum((part.outcomes for part in parts), Counter[str]())
    for outcome, count in sorted(found.items()):
        print(f"{count:>7,}  {outcome}")
    seconds, slowest = max(part.slowest for part in parts)
    print(f"slowest: {slowest}, {seconds:.1f} s of processor time; limit {SECONDS} s")
    print(f"peak memory: {max(part.memory for part in parts) / 2**20:.0f} MiB; limit {MEMORY / 2**20:.0f} MiB")
    failed = sum(count for outcome, count in found.items() if outcome.endswith("FAILED"))
    print(f"{found.total():,} inputs in {time.perf_counter() - began:.0f} s, seed {given.seed}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
