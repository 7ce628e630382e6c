"""The lines of docs/start/pytorch.md."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from glayers import TemperatureScaling, metrics
from glayers.bridges.torch import calibrate, collect_logits

torch.manual_seed(0)
inputs = torch.randn(3000, 20)
labels = (inputs[:, :3] + torch.randn(3000, 3)).argmax(1)  # three classes, hard to tell apart


def part(first, last):  # replace by your own loaders
    return DataLoader(TensorDataset(inputs[first:last], labels[first:last]), batch_size=250)


network = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 3))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(60):  # too long on 500 rows, so the network is overconfident
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(inputs[:500]), labels[:500]).backward()
    optimizer.step()

calibrated = calibrate(network, part(500, 1500), TemperatureScaling()).eval()
print(calibrated.predict_proba(inputs[:2]))

for name, model in (("before", network), ("after", calibrated)):
    rows = collect_logits(model, part(1500, 3000))
    print(name, metrics.nll(rows), metrics.calibration_test(rows))

from glayers.bridges.torch import CalibratedNetwork

calibrated.save("calibration.safetensors")  # the calibration alone; save the network as usual
again = CalibratedNetwork.load(network, "calibration.safetensors").eval()
assert torch.equal(again(inputs[:5]), calibrated(inputs[:5]))
