"""Committed results of the studies -> the figures of the paper: docs/figures/paper.

`python experiments/paper_figures.py [--only NAME ...]`; more in `experiments/studies/figures.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.studies.figures import main

    sys.exit(main())
