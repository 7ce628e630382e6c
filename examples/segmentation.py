"""The lines of docs/start/segmentation.md."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from glayers import TemperatureScaling, metrics
from glayers.bridges.torch import calibrate, collect_logits

torch.manual_seed(0)
patches = torch.randint(3, (40, 6, 6))
# 40 images, 24 x 24 pixels
masks = patches.repeat_interleave(4, 1).repeat_interleave(4, 2)
pictures = torch.eye(3)[masks].movedim(-1, 1) + torch.randn(40, 3, 24, 24)
masks[:, 0] = 255  # the top line of each image has no label

network = nn.Conv2d(3, 3, 1)  # replace with your network
nn.init.dirac_(network.weight)
network.weight.data *= 3  # overconfident


def part(first, last):  # replace with your own loaders
    return DataLoader(
        TensorDataset(pictures[first:last], masks[first:last]), batch_size=5
    )


settings = {"class_axis": 1, "ignore_label": 255, "max_rows": 2000}
calibrated = calibrate(network, part(0, 20), TemperatureScaling(), **settings).eval()
print(calibrated.predict_proba(pictures[:1]).shape)

found = {
    "before": collect_logits(network, part(20, 40), **settings),
    "after": collect_logits(calibrated, part(20, 40), **settings),
}
for name, rows in found.items():
    print(f"{name}: NLL {metrics.nll(rows):.4f}, KS {metrics.ks(rows):.4f}")

from glayers.report.plots import figure

figure("reliability", found).savefig("reliability.svg")
