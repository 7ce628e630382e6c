"""A training run of Hugging Face's Trainer -> its model, calibrated on the evaluation set when the training ends."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from glayers.bridges.torch import CalibrateAfterTraining


class CalibrationCallback(CalibrateAfterTraining, TrainerCallback):  # type: ignore[misc]  # its types would take minutes to check
    """Calibrate the model on the evaluation set when `Trainer.train` ends.

    With `load_best_model_at_end=True`, it calibrates the best model, otherwise that of the last step. Of several
    evaluation sets, it uses the last one.

    Parameters
    ----------
    calibrator
        The calibrator to fit; by default `AutoCalibrator()`.
    path
        Where to save g, as a `.safetensors` file.
    loader
        Held-out batches to use in place of the evaluation set.
    **settings
        Further settings of `calibrate`, such as `class_axis=-1` for token classification.

    Attributes
    ----------
    calibrated : CalibratedNetwork or None
        The model followed by g, after the training; None if that failed, which a warning explains.
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002  # the names of TrainerCallback
        control: TrainerControl,  # noqa: ARG002
        **others: Any,  # noqa: ARG002
    ) -> None:
        """Refuse what could not be calibrated before the training takes its time."""
        lacking = 'the trainer never evaluates: set eval_strategy="epoch", or pass loader=...'
        self._check_start(args.world_size, lacking if args.eval_strategy == "no" else "")

    def on_train_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **others: Any,
    ) -> None:
        """Fit g after the best model, if asked for, is loaded again."""
        loader = others.get("eval_dataloader") if self.loader is None else self.loader
        self._calibrate(others["model"], loader)
