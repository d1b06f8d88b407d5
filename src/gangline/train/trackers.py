"""Trackers that a user has: Weights & Biases and MLflow get what rank 0 records. Off unless asked for.

They are the user's own packages with the user's own settings (WANDB_PROJECT, MLFLOW_TRACKING_URI, ...); a
run that the script has begun itself is used. A tracker that fails is told of once and left alone: a training
does not end for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from gangline.errors import UserError

TRACK_VARIABLE = "GANGLINE_TRACK"
NAMES = ("wandb", "mlflow")


class Tracker(Protocol):
    """Takes the scalars of steps."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the scalars of a step."""

    def close(self) -> None:
        """End a run that was begun here."""


class WandbTracker:
    """A run of Weights & Biases."""

    def __init__(self) -> None:
        self._wandb: Any = import_module("wandb")
        self._is_own = self._wandb.run is None
        self._run: Any = self._wandb.init() if self._is_own else self._wandb.run

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the scalars of a step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """End the run if it was begun here."""
        if self._is_own:
            self._run.finish()


class MlflowTracker:
    """A run of MLflow."""

    def __init__(self) -> None:
        self._mlflow: Any = import_module("mlflow")
        self._is_own = self._mlflow.active_run() is None
        if self._is_own:
            self._mlflow.start_run()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the scalars of a step."""
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """End the run if it was begun here."""
        if self._is_own:
            self._mlflow.end_run()


_MAKERS: dict[str, Callable[[], Tracker]] = {"wandb": WandbTracker, "mlflow": MlflowTracker}


class Trackers:
    """The trackers that were asked for; each fails on its own."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Give the scalars of a step to all."""
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.write(step, values)
            except Exception as error:  # noqa: BLE001 - of a package that is not ours
                self._leave(name, error)

    def close(self) -> None:
        """End the runs that were begun here."""
        for name, tracker in list(self._trackers.items()):
            try:
                tracker.close()
            except Exception as error:  # noqa: BLE001 - of a package that is not ours
                self._leave(name, error)
        self._trackers.clear()

    def _leave(self, name: str, error: Exception) -> None:
        del self._trackers[name]
        sys.stderr.write(f"gangline.train: {name} gets nothing any more: {error}\n")


def open_trackers(wanted: str | Sequence[str] | None) -> Trackers:
    """Return the trackers of these names; without names those of GANGLINE_TRACK (``wandb,mlflow``).

    Raises:
        UserError: a name is unknown, or its package is not there.
    """
    said = os.environ.get(TRACK_VARIABLE, "") if wanted is None else wanted
    names = [name.strip() for name in said.split(",")] if isinstance(said, str) else list(said)
    found: dict[str, Tracker] = {}
    for name in filter(None, names):
        if name not in _MAKERS:
            raise UserError(f"no tracker is called `{name}`", hint=f"there are {', '.join(NAMES)}")
        if find_spec(name) is None:
            raise UserError(f"{name} is asked for and not installed here", hint=f"pip install {name}")
        found[name] = _MAKERS[name]()
    return Trackers(found)
