"""The paper's published logits -> every table of the paper: the printed result, ours over seeds, the difference.

`python experiments/reproduce.py --logits DIR`; more in `experiments/reproduction/command.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.reproduction.command import main

    sys.exit(main())
