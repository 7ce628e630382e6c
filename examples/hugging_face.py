"""The lines of docs/start/hugging-face.md."""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from glayers import TemperatureScaling, metrics
from glayers.bridges.torch import calibrate, collect_logits

torch.manual_seed(0)
size = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
small = DistilBertConfig(vocab_size=60, num_labels=3, **size)
# Replace with: ...from_pretrained("your/model")
model = DistilBertForSequenceClassification(small)
model.eval()
tokens = torch.randint(60, (900, 8))  # replace with: tokenizer(texts, ...)
with torch.no_grad():
    model.classifier.weight *= 300  # an untrained model has tiny logits
    truth = model(tokens).logits / 3  # so that it is overconfident
    labels = torch.distributions.Categorical(logits=truth).sample()


def batches(first, last):  # replace with your own loaders
    for i in range(first, last, 100):
        yield {"input_ids": tokens[i : i + 100], "labels": labels[i : i + 100]}


calibrated = calibrate(model, batches(0, 500), TemperatureScaling()).eval()
print(calibrated.predict_proba(input_ids=tokens[:2]).detach())

found = {
    "before": collect_logits(model, batches(500, 900)),
    "after": collect_logits(calibrated, batches(500, 900)),
}
for name, rows in found.items():
    print(f"{name}: NLL {metrics.nll(rows):.4f}, KS {metrics.ks(rows):.4f}")
calibrated.save("calibrator.safetensors")

from glayers.report.plots import figure

figure("reliability", found).savefig("reliability.svg")
