"""A callback for Hugging Face's Trainer: ``Trainer(..., callbacks=[GanglineTrainerCallback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from gangline.train.adapters.report import Report


class GanglineTrainerCallback(TrainerCallback):
    """Shows progress, names ranks that hang, tells of checkpoints; saves and ends with 75 when asked to stop.

    A script that is started again goes on with ``trainer.train(resume_from_checkpoint=...)``, as ever.

    Args:
        stops: take SIGTERM and SIGUSR1 as the wish to save and end.
        progress: options of `gangline.train.progress.Progress`.
    """

    def __init__(self, *, stops: bool = True, **progress: Any) -> None:
        self._stops, self._options = stops, progress
        self._report: Report | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to report."""
        each = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        self._report = Report(state.global_step, state.max_steps, each, stops=self._stops, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step; asked to stop, have this one saved and be the last."""
        assert self._report is not None
        if self._report.step():
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Record what the trainer logs."""
        if self._report is not None:
            self._report.log(state.global_step, logs or {})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell of a checkpoint, which is on disk by now."""
        if self._report is not None:
            self._report.saved(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the report, and the process where it was asked to stop."""
        report, self._report = self._report, None
        if report is not None:
            report.end()
