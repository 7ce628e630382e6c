"""The lines of docs/start/pytorch.md."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from glayers import TemperatureScaling, metrics
from glayers.bridges.torch import calibrate, collect_logits

torch.manual_seed(0)
inputs = torch.randn(12_000, 20)
# Three classes, hard to tell apart
labels = (inputs[:, :3] + torch.randn(12_000, 3)).argmax(1)


def part(first, last):  # replace with your own loaders
    return DataLoader(
        TensorDataset(inputs[first:last], labels[first:last]), batch_size=250
    )


network = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 3))
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(60):  # too long on 500 rows, so the network is overconfident
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(inputs[:500]), labels[:500]).backward()
    optimizer.step()

calibrated = calibrate(network, part(500, 6000), TemperatureScaling()).eval()
print(calibrated.predict_proba(inputs[:2]).detach())

found = {
    "before": collect_logits(network, part(6000, 12_000)),
    "after": collect_logits(calibrated, part(6000, 12_000)),
}
for name, rows in found.items():
    print(f"{name}: NLL {metrics.nll(rows):.4f}")
print(metrics.calibration_test(found["before"]))
fitted = calibrated.calibrator
after = found["after"]
print(metrics.calibration_test(after, calibrator=fitted, before=found["before"]))

from glayers.report.plots import figure

figure("reliability", found).savefig("reliability.svg")

from glayers.bridges.torch import CalibratedNetwork

# Only the calibrator. Save the network with torch.save, as usual
calibrated.save("calibrator.safetensors")
again = CalibratedNetwork.load(network, "calibrator.safetensors").eval()
assert torch.equal(again(inputs[:5]), calibrated(inputs[:5]))
