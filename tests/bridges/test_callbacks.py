"""The callbacks for Lightning and for Hugging Face's Trainer calibrate at the end of real, tiny training runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
from transformers import Trainer as HuggingFaceTrainer

import glayers
from glayers import GlayersWarning, TemperatureScaling
from glayers.bridges.lightning import Calibration
from glayers.bridges.torch import calibrate
from glayers.bridges.transformers import CalibrationCallback
from glayers.errors import GlayersError
from tests.strategies import Numbers

# Both libraries warn about few workers, missing loggers and their own dependencies.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
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


@pytest.mark.parametrize("several", [False, True], ids=["one", "list of one"])
def test_lightning_ends_with_a_calibrated_network(several: bool, tmp_path: Path) -> None:
    callback, module = Calibration(TemperatureScaling(), path=tmp_path / "g.safetensors"), Counter()
    lightning_trainer(callback, tmp_path).fit(module, loader(0), [loader(1)] if several else loader(1))
    assert callback.calibrated is not None
    again = calibrate(module, loader(1), TemperatureScaling())
    assert callback.calibrated.calibrator.temperature_ == again.calibrator.temperature_
    assert glayers.load(tmp_path / "g.safetensors").temperature_ == again.calibrator.temperature_
    assert torch.equal(callback.calibrated.eval()(rows(2)[0]), again.eval()(rows(2)[0]))


def test_lightning_takes_other_batches_and_settings() -> None:
    callback = Calibration(TemperatureScaling(), loader=loader(1), max_rows=50)
    lightning_trainer(callback, Path()).fit(Counter(), loader(0))
    assert callback.calibrated is not None
    assert callback.calibrated.calibrator.diagnostics_.rows == 50


def test_lightning_without_exactly_one_validation_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlayersError, match="no validation set: give it one, or pass loader="):
        lightning_trainer(Calibration(TemperatureScaling()), tmp_path).fit(Counter(), loader(0))
    with pytest.warns(GlayersWarning, match="trained, but g could not be calibrated: .* not exactly one validation"):
        lightning_trainer(Calibration(TemperatureScaling()), tmp_path).fit(Counter(), loader(0), [loader(1)] * 2)


def test_several_processes_are_refused_before_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trainer = lightning_trainer(Calibration(), tmp_path)
    monkeypatch.setattr(type(trainer), "world_size", 2)
    with pytest.raises(GlayersError, match="each of the 2 processes"):
        Calibration().on_fit_start(trainer, Counter())
    arguments = TrainingArguments(str(tmp_path), use_cpu=True)
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    with pytest.raises(GlayersError, match="each of the 2 processes"):
        CalibrationCallback().on_train_begin(arguments, None, None)


@pytest.mark.parametrize("kind", [Calibration, CalibrationCallback])
def test_a_wrong_setting_is_refused_before_the_training_and_an_error_after_it_loses_nothing(
    kind: Any, tmp_path: Path
) -> None:
    with pytest.raises(GlayersError, match="unknown setting 'class_axs'; `calibrate` knows class_axis, ignore_label"):
        kind(class_axs=1)
    given = kind(TemperatureScaling(), loader=loader(1), path=tmp_path / "missing" / "g.safetensors")
    arguments: Any = ((None, Counter()), {}) if kind is Calibration else ((None, None, None), {"model": Counter()})
    with pytest.warns(GlayersWarning, match="trained, but g could not be saved"):
        given.on_train_end(*arguments[0], **arguments[1])
    assert given.calibrated is not None


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


def test_hugging_face_ends_with_a_calibrated_model(tmp_path: Path) -> None:
    callback = CalibrationCallback(TemperatureScaling(), path=tmp_path / "g.safetensors")
    trainer = hugging_face_trainer(callback, tmp_path)
    trainer.train()
    assert callback.calibrated is not None
    again = calibrate(trainer.model, [{"input_ids": rows(1)[0], "labels": rows(1)[1]}], TemperatureScaling())
    found = callback.calibrated.calibrator.temperature_
    assert found == pytest.approx(again.calibrator.temperature_, rel=1e-4)
    assert glayers.load(tmp_path / "g.safetensors").temperature_ == found
    p = callback.calibrated.eval().predict_proba(input_ids=rows(2)[0])
    assert p.shape == (ROWS, CLASSES)


def test_hugging_face_calibrates_the_best_model(tmp_path: Path) -> None:
    callback = CalibrationCallback(TemperatureScaling())
    best_is = {"metric_for_best_model": "loss", "greater_is_better": True}  # so that the first epoch wins
    kept = {"save_strategy": "epoch", "load_best_model_at_end": True, **best_is}
    trainer = hugging_face_trainer(callback, tmp_path, learning_rate=0.01, **kept)
    trainer.train()
    assert callback.calibrated is not None
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-3")
    best = BertForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    held = dict(callback.calibrated.network.state_dict())
    assert all(torch.equal(held[name], value) for name, value in best.state_dict().items())


def test_hugging_face_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlayersError, match="never evaluates"):
        hugging_face_trainer(CalibrationCallback(TemperatureScaling()), tmp_path, eval_strategy="no").train()
    with pytest.warns(GlayersWarning, match="not exactly one validation loader"):
        CalibrationCallback(TemperatureScaling()).on_train_end(None, None, None, model=None, eval_dataloader=None)
    given = CalibrationCallback(TemperatureScaling(), loader=[{"input_ids": rows(1)[0], "labels": rows(1)[1]}])
    hugging_face_trainer(given, tmp_path, eval_strategy="no").train()
    assert given.calibrated is not None
