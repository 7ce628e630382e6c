"""Two folders of results -> whether the tables are the same, or how far apart in units of the spread over seeds.

`python experiments/same_tables.py FRESH COMMITTED`; more in `experiments/studies/same.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # called as a file, Python looks for modules beside it only
    from experiments.studies.same import main

    sys.exit(main())
