"""A Lightning training run -> its network, calibrated on the validation set when the training ends."""

import os
from collections.abc import Iterable
from typing import Any

from glayers.bridges.torch import CalibratedNetwork, calibrate_after_training, check_settings
from glayers.calibrators import Calibrator
from glayers.errors import GlayersError

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:  # the older name of the same library
    from pytorch_lightning import Callback, LightningModule, Trainer


class Calibration(Callback):  # type: ignore[misc]  # its types would take minutes to check
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

    def __init__(
        self,
        calibrator: Calibrator | None = None,
        path: str | os.PathLike[str] | None = None,
        loader: Iterable[Any] | None = None,
        **settings: Any,
    ) -> None:
        check_settings(settings)
        self.calibrator, self.path, self.loader, self.settings = calibrator, path, loader, settings
        self.calibrated: CalibratedNetwork | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002  # Lightning's names
        """Refuse what could not be calibrated before the training takes its time."""
        if trainer.world_size > 1:
            raise GlayersError(
                f"each of the {trainer.world_size} processes sees only a part of the validation set: leave this "
                f"callback out, and call glayers.bridges.torch.calibrate after the training"
            )
        if self.loader is None and not trainer.enable_validation:
            raise GlayersError("the trainer has no validation set: give it one, or pass loader=... to Calibration")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit g while the network is still on its device."""
        loader = self.loader
        if loader is None:
            found = trainer.val_dataloaders
            several = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found]
            loader = several[0] if len(several) == 1 else None
        self.calibrated = calibrate_after_training(pl_module, loader, self.calibrator, self.path, self.settings)
