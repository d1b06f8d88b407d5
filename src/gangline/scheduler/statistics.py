"""What a scheduler tells of itself: counted on the way, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gangline.kube.durations import Durations


@dataclass(slots=True)
class SchedulerStatistics:
    """Counts since the start, and what waits now. A pod of no gang counts as a gang of one.

    Attributes:
        waiting: gangs that wait, by the reason that the last pass found.
        passes: how long passes took.
        gangs_placed: gangs that were given nodes; one that is placed in two parts counts twice.
        gangs_preempted: gangs that had to give way.
        gangs_suspended: gangs that were suspended for others, to go on later.
        gangs_taken_back: gangs that were bound and start anew, by the event that says so.
        pods_bound: bindings that the API server has taken.
        bind_failures: bindings that it has not, by HTTP status; ``error`` where no answer came.
        events_dropped: events that could not be sent.
    """

    waiting: Counter[str] = field(default_factory=Counter)
    passes: Durations = field(default_factory=Durations)
    gangs_placed: int = 0
    gangs_preempted: int = 0
    gangs_suspended: int = 0
    gangs_taken_back: Counter[str] = field(default_factory=Counter)
    pods_bound: int = 0
    bind_failures: Counter[str] = field(default_factory=Counter)
    events_dropped: int = 0
