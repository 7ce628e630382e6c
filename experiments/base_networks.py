"""Images -> base networks trained here, and their logits after 1, 2, 5, 10 and 15 epochs and at the early stop.

`python experiments/base_networks.py --cifar10 DIR`; more in `experiments/networks/command.py`.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # for a script, Python looks for modules only beside it
    from experiments.networks.command import main

    sys.exit(main())
