"""Sets of 100 and more classes -> the paper's recipe beside temperature scaling.

`python experiments/many_classes.py --logits DIR`; more in `experiments/studies/many_classes.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.studies.many_classes import main

    sys.exit(main())
