"""The sets of logits in our tables -> their size, training loss, checksum and source, as a table.

Run: python -m experiments.accuracy.sets_of_logits --logits DIR. Writes results/sets_of_logits.md. The checksum is the
SHA-256 of logits_val, y_val, logits_test and y_test (float32 and int64, one after another), its first 16 digits.
"""

import argparse
import csv
from pathlib import Path

from experiments.logit_files import checksum, read_both
from experiments.stamp import write_page

from glayers.text_tables import markdown_table

HERE = Path(__file__).parent
HEADING = ["set", "training loss", "source", "classes", "calibration rows", "test rows", "SHA-256"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logits", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().logits
    rows = [HEADING]
    with (HERE / "sets_of_logits.csv").open(encoding="utf-8", newline="") as file:
        for about in csv.DictReader(file):
            calibration, test = parts = read_both(folder / f"{about['set']}.npz")
            found = checksum(parts)
            if found != about.pop("sha256"):
                raise SystemExit(f"{about['set']}: its checksum is {found}, another one than in sets_of_logits.csv")
            sizes = [f"{n:,}" for n in (test.n_classes, len(calibration), len(test))]
            rows.append([*about.values(), *sizes, found[:16]])
    head = "Made by `python -m experiments.accuracy.sets_of_logits --logits DIR`. The sets of logits in our tables."
    text = f"{head}\n\n{markdown_table(rows, text_columns=3)}\n"
    write_page(HERE.parent / "results" / "sets_of_logits.md", text)
    print(text)


if __name__ == "__main__":
    main()
