"""The lines of docs/start/hugging-face.md."""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from glayers import TemperatureScaling, metrics
from glayers.bridges.torch import calibrate, collect_logits

torch.manual_seed(0)
small = DistilBertConfig(vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=16, num_labels=3)
model = DistilBertForSequenceClassification(small).eval()  # replace: ...from_pretrained("your/model")
tokens = torch.randint(60, (900, 8))  # replace by tokenizer(texts, return_tensors="pt", padding=True)
with torch.no_grad():
    model.classifier.weight *= 300  # an untrained model has tiny logits
    labels = torch.distributions.Categorical(logits=model(tokens).logits / 3).sample()  # it is too sure


def batches(first, last):  # replace by your own loaders
    return [{"input_ids": tokens[i : i + 100], "labels": labels[i : i + 100]} for i in range(first, last, 100)]


calibrated = calibrate(model, batches(0, 500), TemperatureScaling()).eval()
print(calibrated.predict_proba(input_ids=tokens[:2]))

for name, each in (("before", model), ("after", calibrated)):
    print(name, metrics.nll(collect_logits(each, batches(500, 900))))
calibrated.save("calibration.safetensors")
