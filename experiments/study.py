"""The logits of our base networks -> the studies of the paper's questions: one csv and its tables per study.

`python experiments/study.py [NAME ...]`; more in `experiments/studies/command.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.studies.command import main

    sys.exit(main())
