"""Two folders of results -> whether the tables agree, or how far apart they are in units of the spread over seeds.

`python experiments/same_tables.py FRESH COMMITTED`; more in `experiments/studies/same.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.studies.same import main

    sys.exit(main())
