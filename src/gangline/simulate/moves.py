"""What a policy of a replay decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.simulate.trace import TraceJob

Masks = dict[int, int]
"""GPUs of a job: mask by row of the node."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What happens at one moment: first jobs are suspended, then others start or go on.

    Attributes:
        started: jobs with their GPUs.
        suspended: jobs that ran; they wait again.
    """

    started: list[tuple[TraceJob, Masks]]
    suspended: list[TraceJob] = field(default_factory=list)
