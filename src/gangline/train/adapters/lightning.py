"""A callback for Lightning: ``Trainer(..., callbacks=[GanglineCallback()])``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from gangline.train.adapters.report import Report

RESUME_FILE = "resume.ckpt"
"""In the trainer's ``default_root_dir``: what is saved when the job is asked to stop."""


class GanglineCallback(Callback):
    """Shows progress, names ranks that hang, tells of checkpoints; saves and ends with 75 when asked to stop.

    Started again, the script goes on with ``trainer.fit(model, ckpt_path="resume.ckpt")`` where that file is.

    Args:
        stops: take SIGTERM and SIGUSR1 as the wish to save and end.
        progress: options of `gangline.train.progress.Progress`.
    """

    def __init__(self, *, stops: bool = True, **progress: Any) -> None:
        self._stops, self._options = stops, {"unit": "batches", **progress}
        self._report: Report | None = None
        self._steps = 0
        self._saving: int | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to report."""
        self._steps, total = trainer.global_step, trainer.estimated_stepping_batches
        steps = int(total) if 0 < total < float("inf") else None
        if self._stops:  # Lightning's own handler would end the one rank that the signal reaches
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        each = trainer.accumulate_grad_batches * trainer.world_size
        self._report = Report(self._steps, steps, each, stops=self._stops, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Count a step of the optimizer; asked to stop, save it and have it be the last."""
        self._tell_saved()
        if self._report is None or trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if self._report.step(loss) and not trainer.should_stop:
            trainer.save_checkpoint(Path(trainer.default_root_dir, RESUME_FILE))
            trainer.should_stop = True

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Note a checkpoint, which is about to be written."""
        self._saving = trainer.global_step

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the report, and the process where it was asked to stop."""
        self._tell_saved()
        report, self._report = self._report, None
        if report is not None:
            report.end()

    def _tell_saved(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None and self._report is not None:
            self._report.saved(saving)
