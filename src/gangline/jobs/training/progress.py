"""How far a training job is by its pods."""

from __future__ import annotations

from typing import Literal, NamedTuple


class ReplicaProgress(NamedTuple):
    """How far a job is.

    Attributes:
        state: empty where it neither runs nor is done.
        message: of the condition.
    """

    state: Literal["", "Running", "Succeeded"]
    message: str
