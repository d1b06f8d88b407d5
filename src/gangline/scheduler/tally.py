"""What is counted: how far the pods of each gang are, and what the scheduler has done. No input or output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from sys import intern

from gangline.api.core import Pod
from gangline.kube.durations import Durations
from gangline.scheduler.kept import KeptPod, SeenPod
from gangline.workloads.gang_names import gang_of


@dataclass(frozen=True, slots=True)
class GangProgress:
    """How many pods of a gang there are, and how far; a pod counts in one of the last four at most.

    Attributes:
        pods: that exist.
        bound: have a node and do not run yet.
        running: run.
        succeeded: ended well.
        failed: ended otherwise.
    """

    pods: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def placed(self) -> int:
        """How many have had a node."""
        return self.bound + self.running + self.succeeded + self.failed


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


class GangTally:
    """Counts the pods of gangs, one change at a time.

    Args:
        names: scheduler names of the pods that count.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._stages: dict[str, dict[str, str]] = {}

    def take(self, old: SeenPod | None, new: Pod | None) -> str:
        """Take a pod as it is now; return the key of its gang when a number has changed, else nothing."""
        if new is None:
            return self._drop(KeptPod.of(old)) if old is not None else ""
        if new.spec.scheduler_name not in self._names or not (gang := gang_of(new)):
            return ""
        uid, stages = new.metadata.uid, self._stages.setdefault(intern(gang), {})
        before, stages[uid] = stages.get(uid), _stage(new)
        return gang if stages[uid] != before else ""

    def _drop(self, pod: KeptPod) -> str:
        stages = self._stages.get(pod.gang, {})
        if stages.pop(pod.uid, None) is None:
            return ""
        if not stages:
            del self._stages[pod.gang]
        return pod.gang

    def progress(self, gang: str) -> GangProgress:
        """Return how far a gang is. Cost: one step for each of its pods."""
        counts = Counter(self._stages.get(gang, {}).values())
        return GangProgress(
            counts.total(), counts["Bound"], counts["Running"], counts["Succeeded"], counts["Failed"]
        )


def _stage(pod: Pod) -> str:
    if pod.status.phase in ("Running", "Succeeded", "Failed"):
        return intern(pod.status.phase)
    return "Bound" if pod.spec.node_name else "Waiting"
