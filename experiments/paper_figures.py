"""Committed results of the studies -> the figures of the paper drawn anew: docs/figures/paper.

`python experiments/paper_figures.py [--only NAME ...]`; more in `experiments/studies/figures.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # called as a file, Python looks for modules beside it only
    from experiments.studies.figures import main

    sys.exit(main())
