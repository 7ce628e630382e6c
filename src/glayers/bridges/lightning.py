"""A Lightning training run -> its network, calibrated on the validation set when the training ends."""

from glayers.bridges.torch import CalibrateAfterTraining

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:  # the older name of the same library
    from pytorch_lightning import Callback, LightningModule, Trainer


class Calibration(CalibrateAfterTraining, Callback):  # type: ignore[misc]  # its types would take minutes to check
    """Calibrate the network on the validation set when `Trainer.fit` ends; its `forward` must return logits.

    It calibrates the weights of the last step. If you keep the best checkpoint instead, load it and call `calibrate`.

    Parameters
    ----------
    calibrator
        The calibrator to fit; by default `AutoCalibrator()`.
    path
        Where to save g, as a `.safetensors` file.
    loader
        Held-out batches to use in place of the validation set.
    **settings
        Further settings of `calibrate`, such as `class_axis` and `ignore_label`.

    Attributes
    ----------
    calibrated : CalibratedNetwork or None
        The module followed by g, after the training; None if that failed, which a warning explains.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002  # Lightning's names
        """Refuse what could not be calibrated before the training takes its time."""
        lacking = "the trainer has no validation set: give it one, or pass loader=... to Calibration"
        self._check_start(trainer.world_size, "" if trainer.enable_validation else lacking)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit g while the network is still on its device."""
        loader = self.loader
        if loader is None:
            found = trainer.val_dataloaders
            several = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found]
            loader = several[0] if len(several) == 1 else None
        self._calibrate(pl_module, loader)
