"""Score and calibrate a directory of Parquet files: time and peak memory, beside reading the files alone.

    python benchmarks/bench_files.py --gigabytes 2
    python benchmarks/bench_files.py --gigabytes 20   # 5 million rows of 1,000 classes

The files are generated: logits of a simulated network in float32, one column per class. They are removed afterwards,
unless `--keep` names a folder for them; a second run with the same folder does not generate them again.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from glayers import TemperatureScaling

_ROWS = 50_000  # of one file
_DIFFERENT = 8  # files that are generated; the others are copies of them
_READ = """
import sys
from pathlib import Path
from pyarrow import parquet
for path in sorted(Path(sys.argv[1]).glob("*.parquet")):
    with parquet.ParquetFile(path, buffer_size=2**16, pre_buffer=False) as file:
        for batch in file.iter_batches(8192):
            pass
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of all files")
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, help="where to generate the files; it needs twice their size")
    parser.add_argument("--keep", type=Path, help="generate the files here and keep them")
    parser.add_argument("--only-generate", action="store_true")
    given = parser.parse_args()
    n_files = max(1, round(given.gigabytes * 1e9 / (4 * given.classes * _ROWS)))
    folder = given.keep or Path(tempfile.mkdtemp(prefix="glayers-bench-", dir=given.folder))
    try:
        if not (folder / "model.safetensors").exists():
            # In a process of its own: the peak of a child counts what its parent held when it started.
            maker = get_context("spawn").Process(target=_generate, args=(folder, n_files, given.classes))
            maker.start()
            maker.join()
        if given.only_generate:
            return
        n_files = len(list((folder / "in").iterdir()))
        size = sum(file.stat().st_size for file in (folder / "in").iterdir()) / 1e9
        print(f"{n_files * _ROWS:,} rows x {given.classes:,} classes, {n_files} files, {size:.2f} GB")
        program = [sys.executable, "-m", "glayers"]
        commands = {
            "read": [sys.executable, "-c", _READ, str(folder / "in")],
            "score": [*program, "score", str(folder / "in")],
            "apply": [
                *program,
                "apply",
                f"{folder}/model.safetensors",
                f"{folder}/in",
                "-o",
                f"{folder}/out",
            ],
        }
        load = os.getloadavg()[0]
        print(f"{len(os.sched_getaffinity(0))} cores, load {load:.1f} before the start")
        print(f"{'':8}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}{'GB/s':>8}{'of reading':>12}")
        before, *_ = alone = _measure(commands["read"])
        print(_line("read", alone, size, before), flush=True)
        for name in ("score", "apply"):
            found = _measure(commands[name])
            after, *_ = alone = _measure(commands["read"])
            print(
                _line(name, found, size, (before + after) / 2), _line("read", alone, size, after), sep="\n", flush=True
            )
            before = after
    finally:
        shutil.rmtree(folder / "out" if given.keep else folder, ignore_errors=True)


def _line(name: str, found: tuple[float, float, float], size: float, alone: float) -> str:
    """Return a line of the table; a command is compared with reading right before and after it."""
    wall, processor, peak = found
    return f"{name:8}{wall:9.1f}{processor:9.1f}{peak:9.0f}{size / wall:8.3f}{alone / wall:12.2f}"


def _generate(folder: Path, n_files: int, n_classes: int) -> None:
    """Write files of logits that are too large by 1.6, with labels drawn from the correct ones."""
    import pyarrow
    from pyarrow import parquet

    (folder / "in").mkdir(parents=True)
    for number in range(min(n_files, _DIFFERENT)):
        rng = np.random.default_rng(number)
        z = rng.standard_normal((_ROWS, n_classes), dtype=np.float32) * np.float32(2.5)
        labels = (z - np.log(np.maximum(rng.standard_exponential(z.shape, dtype=np.float32), 1e-30))).argmax(axis=1)
        columns = {f"logit_{c}": 1.6 * z[:, c] for c in range(n_classes)}
        table = pyarrow.table({**columns, "label": labels})
        parquet.write_table(table, folder / "in" / f"{number:05d}.parquet", use_dictionary=["label"])
    for number in range(_DIFFERENT, n_files):
        shutil.copyfile(folder / "in" / f"{number % _DIFFERENT:05d}.parquet", folder / "in" / f"{number:05d}.parquet")
    TemperatureScaling().fit(1.6 * z, labels).save(folder / "model.safetensors")


def _measure(command: list[str]) -> tuple[float, float, float]:
    """Return wall and processor seconds, and the peak of the resident memory in MB."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603  # our own commands
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed")
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / scale


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
