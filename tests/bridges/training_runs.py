"""Tiny training runs of Lightning and of Hugging Face's Trainer; importing them takes seconds, so tests do it late."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
from transformers import Trainer as HuggingFaceTrainer

from glayers.bridges.lightning import Calibration
from glayers.bridges.torch import calibrate  # noqa: F401 (for the tests)
from glayers.bridges.transformers import CalibrationCallback
from tests.strategies import Numbers

ROWS, TOKENS, CLASSES = 96, 6, 3


def rows(seed: int) -> tuple[Tensor, Tensor]:
    """Tokens, and whether 0, 1 or 2 is the most frequent of them, with one label in four drawn at random."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, CLASSES, (ROWS, TOKENS))
    labels = np.array([np.bincount(row, minlength=CLASSES).argmax() for row in tokens])
    noisy = np.where(rng.random(ROWS) < 0.25, rng.integers(0, CLASSES, ROWS), labels)
    return torch.tensor(tokens), torch.tensor(noisy)


class Counter(LightningModule):  # type: ignore[misc]
    """A linear model of token counts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(CLASSES, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(nn.functional.one_hot(tokens, CLASSES).float().sum(dim=1))

    def training_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Tensor:  # noqa: ARG002
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    validation_step = training_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def loader(seed: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*rows(seed)), batch_size=32)


def lightning_trainer(callback: Calibration, folder: Path) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(max_epochs=2, accelerator="cpu", callbacks=[callback], default_root_dir=folder, **quiet)


def tiny_bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(
        BertConfig(vocab_size=CLASSES, max_position_embeddings=TOKENS, num_labels=CLASSES, **sizes)
    )


def examples(seed: int) -> list[dict[str, Numbers]]:
    return [{"input_ids": tokens, "labels": label} for tokens, label in zip(*rows(seed), strict=True)]


def hugging_face_trainer(callback: CalibrationCallback, folder: Path, **settings: Any) -> HuggingFaceTrainer:
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=32,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **{"eval_strategy": "epoch", "save_strategy": "no"} | settings,
    )
    return HuggingFaceTrainer(
        tiny_bert(), arguments, train_dataset=examples(0), eval_dataset=examples(1), callbacks=[callback]
    )
