"""The logits of our base networks -> the studies of the paper's questions: one csv and its tables per study.

`python experiments/study.py NAME ...` runs the missing jobs of the named studies, or of all studies. Jobs in a csv are
not run again, unless the logits of their network have changed. `--tables` fits nothing and only writes the tables.
`field` compares our reproduction of the paper with published results, and `searches` counts the searches that ended
inside the values they tried; they fit nothing either.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.networks.captured import FOLDER, load_networks
from experiments.studies.curves import Curves
from experiments.studies.field import write_field
from experiments.studies.losses import Losses
from experiments.studies.networks import Networks
from experiments.studies.ranks import Ranks
from experiments.studies.regularisation import Regularisation
from experiments.studies.searches import write_searches
from experiments.studies.set_size import SetSize
from experiments.studies.sets import every_checkpoint
from experiments.studies.sizes import Sizes
from experiments.studies.starts import Starts
from experiments.studies.study import Study, run, write_tables

RESULTS = Path(__file__).parents[1] / "results"
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
        parser.error(f"{settings.networks} holds no networks; train them with experiments/base_networks.py")
    for study in chosen:
        if settings.tables:
            write_tables(study, settings.results)
        else:
            run(study, sets, settings.results)
    for name, write in FITTING_NOTHING.items():
        if name in names:
            write(settings.results)
    return 0
