"""The logits of our base networks -> the studies of the paper's questions, each a csv and its tables.

`python experiments/study.py [NAME ...]`; more in `experiments/studies/command.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # called as a file, Python looks for modules beside it only
    from experiments.studies.command import main

    sys.exit(main())
