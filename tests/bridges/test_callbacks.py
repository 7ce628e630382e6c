"""The callbacks for Lightning and for Hugging Face's Trainer calibrate at the end of real, tiny training runs."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import glayers
from glayers import GlayersWarning, TemperatureScaling
from glayers.errors import GlayersError

# Both libraries warn about few workers, missing loggers and their own dependencies.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def runs() -> Any:
    """`tests.bridges.training_runs`, imported when a test needs it: at collection each worker would import it."""
    return import_module("tests.bridges.training_runs")


@pytest.mark.parametrize("several", [False, True], ids=["one", "list of one"])
def test_lightning_ends_with_a_calibrated_network(runs: Any, several: bool, tmp_path: Path) -> None:
    callback, module = runs.Calibration(TemperatureScaling(), path=tmp_path / "g.safetensors"), runs.Counter()
    validation = [runs.loader(1)] if several else runs.loader(1)
    runs.lightning_trainer(callback, tmp_path).fit(module, runs.loader(0), validation)
    assert callback.calibrated is not None
    again = runs.calibrate(module, runs.loader(1), TemperatureScaling())
    assert callback.calibrated.calibrator.temperature_ == again.calibrator.temperature_
    assert glayers.load(tmp_path / "g.safetensors").temperature_ == again.calibrator.temperature_
    assert runs.torch.equal(callback.calibrated.eval()(runs.rows(2)[0]), again.eval()(runs.rows(2)[0]))


def test_lightning_takes_other_batches_and_settings(runs: Any) -> None:
    callback = runs.Calibration(TemperatureScaling(), loader=runs.loader(1), max_rows=50)
    runs.lightning_trainer(callback, Path()).fit(runs.Counter(), runs.loader(0))
    assert callback.calibrated is not None
    assert callback.calibrated.calibrator.diagnostics_.rows == 50


def test_lightning_without_exactly_one_validation_set_is_refused(runs: Any, tmp_path: Path) -> None:
    with pytest.raises(GlayersError, match="no validation set: give it one, or pass loader="):
        runs.lightning_trainer(runs.Calibration(TemperatureScaling()), tmp_path).fit(runs.Counter(), runs.loader(0))
    trainer = runs.lightning_trainer(runs.Calibration(TemperatureScaling()), tmp_path)
    with pytest.warns(GlayersWarning, match="trained, but g could not be calibrated: .* not exactly one validation"):
        trainer.fit(runs.Counter(), runs.loader(0), [runs.loader(1)] * 2)


def test_several_processes_are_refused_before_the_training(
    runs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trainer = runs.lightning_trainer(runs.Calibration(), tmp_path)
    monkeypatch.setattr(type(trainer), "world_size", 2)
    with pytest.raises(GlayersError, match="each of the 2 processes"):
        runs.Calibration().on_fit_start(trainer, runs.Counter())
    arguments = runs.TrainingArguments(str(tmp_path), use_cpu=True)
    monkeypatch.setattr(runs.TrainingArguments, "world_size", 2)
    with pytest.raises(GlayersError, match="each of the 2 processes"):
        runs.CalibrationCallback().on_train_begin(arguments, None, None)


@pytest.mark.parametrize("kind", ["Calibration", "CalibrationCallback"])
def test_a_wrong_setting_is_refused_before_the_training_and_an_error_after_it_loses_nothing(
    runs: Any, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'class_axs'"):
        getattr(runs, kind)(class_axs=1)
    path = tmp_path / "missing" / "g.safetensors"
    given = getattr(runs, kind)(TemperatureScaling(), loader=runs.loader(1), path=path)
    arguments: tuple[Any, ...] = (None, runs.Counter())
    settings: dict[str, Any] = {}
    if kind == "CalibrationCallback":
        arguments = (None, None, None)
        settings = {"model": runs.Counter()}
    with pytest.warns(GlayersWarning, match="trained, but g could not be saved"):
        given.on_train_end(*arguments, **settings)
    assert given.calibrated is not None


def test_hugging_face_ends_with_a_calibrated_model(runs: Any, tmp_path: Path) -> None:
    callback = runs.CalibrationCallback(TemperatureScaling(), path=tmp_path / "g.safetensors")
    trainer = runs.hugging_face_trainer(callback, tmp_path)
    trainer.train()
    assert callback.calibrated is not None
    tokens, labels = runs.rows(1)
    again = runs.calibrate(trainer.model, [{"input_ids": tokens, "labels": labels}], TemperatureScaling())
    found = callback.calibrated.calibrator.temperature_
    assert found == pytest.approx(again.calibrator.temperature_, rel=1e-4)
    assert glayers.load(tmp_path / "g.safetensors").temperature_ == found
    p = callback.calibrated.eval().predict_proba(input_ids=runs.rows(2)[0])
    assert p.shape == (runs.ROWS, runs.CLASSES)


def test_hugging_face_calibrates_the_best_model(runs: Any, tmp_path: Path) -> None:
    callback = runs.CalibrationCallback(TemperatureScaling())
    best_is = {"metric_for_best_model": "loss", "greater_is_better": True}  # so that the first epoch wins
    kept = {"save_strategy": "epoch", "load_best_model_at_end": True, **best_is}
    trainer = runs.hugging_face_trainer(callback, tmp_path, learning_rate=0.01, **kept)
    trainer.train()
    assert callback.calibrated is not None
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-3")
    best = runs.BertForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    held = dict(callback.calibrated.network.state_dict())
    assert all(runs.torch.equal(held[name], value) for name, value in best.state_dict().items())


def test_hugging_face_without_an_evaluation_is_refused(runs: Any, tmp_path: Path) -> None:
    with pytest.raises(GlayersError, match="never evaluates"):
        runs.hugging_face_trainer(runs.CalibrationCallback(TemperatureScaling()), tmp_path, eval_strategy="no").train()
    with pytest.warns(GlayersWarning, match="not exactly one validation loader"):
        runs.CalibrationCallback(TemperatureScaling()).on_train_end(None, None, None, model=None, eval_dataloader=None)
    tokens, labels = runs.rows(1)
    given = runs.CalibrationCallback(TemperatureScaling(), loader=[{"input_ids": tokens, "labels": labels}])
    runs.hugging_face_trainer(given, tmp_path, eval_strategy="no").train()
    assert given.calibrated is not None
