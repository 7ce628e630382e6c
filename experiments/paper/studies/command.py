"""The logits of our base networks -> the studies of the paper's questions: one csv and its tables per study.

`python -m experiments.paper.studies.command NAME ...` runs the missing jobs of the named studies, or of all studies.
Jobs in a csv are not run again, unless the logits of their network have changed. `--tables` fits nothing and only
writes the tables. `field` compares our reproduction of the paper with published results, and `searches` counts the
searches that ended inside the values they tried; they fit nothing either.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.paper.networks.captured import FOLDER, load_networks
from experiments.paper.studies.curves import Curves
from experiments.paper.studies.field import write_field
from experiments.paper.studies.losses import Losses
from experiments.paper.studies.networks import Networks
from experiments.paper.studies.ranks import Ranks
from experiments.paper.studies.regularisation import Regularisation
from experiments.paper.studies.searches import write_searches
from experiments.paper.studies.set_size import SetSize
from experiments.paper.studies.sets import every_checkpoint
from experiments.paper.studies.sizes import Sizes
from experiments.paper.studies.starts import Starts
from experiments.paper.studies.study import Study, run, write_tables

RESULTS = Path(__file__).parents[2] / "results"
ALL: tuple[Study, ...] = (
    *(Networks(), Sizes(), Starts(), Ranks(), Curves()),
    *(SetSize(), Regularisation(), Losses()),
)
STUDIES = {study.name: study for study in ALL}
FITTING_NOTHING = {"field": write_field, "searches": write_searches}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; errors in the networks are raised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *STUDIES, *FITTING_NOTHING], metavar="NAME")
    parser.add_argument("--networks", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--tables", action="store_true", help="make the tables from the csv files, fit nothing")
    settings = parser.parse_args(arguments)
    names = settings.names or [*STUDIES, *FITTING_NOTHING]
    chosen = [STUDIES[name] for name in names if name in STUDIES]
    sets = [] if settings.tables or not chosen else every_checkpoint(load_networks(settings.networks))
    if chosen and not settings.tables and not sets:
        parser.error(f"{settings.networks} holds no networks; train them with experiments/paper/networks/command.py")
    for study in chosen:
        if settings.tables:
            write_tables(study, settings.results)
        else:
            run(study, sets, settings.results)
    for name, write in FITTING_NOTHING.items():
        if name in names:
            write(settings.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
