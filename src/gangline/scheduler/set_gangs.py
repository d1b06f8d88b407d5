"""Follows which gang a pod is in by what it is of, and in which one that has succeeded keeps its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import Resource
from gangline.scheduler.kept import pod_of_set
from gangline.workloads.gang_names import succeeded_gang
from gangline.workloads.workload_sets import SetGang, WorkloadSets, is_of_set

Obj = Mapping[str, Any]


class SetGangs:
    """JobSets and LeaderWorkerSets, and the pods that are of one; changed one object at a time.

    Args:
        succeeded: by gang, how many of its pods have succeeded; kept up to date here.
    """

    def __init__(self, succeeded: Counter[str]) -> None:
        self.sets = WorkloadSets()
        self._succeeded = succeeded
        self._gangs: dict[str, str] = {}  # of pods that keep their places, by uid
        self._pods: dict[str, Pod] = {}

    def take_pod(self, uid: str, pod: Pod | None) -> None:
        """Take a pod as it is now; None when it is gone."""
        if pod is not None and is_of_set(pod):
            self._pods[uid] = pod_of_set(pod)
        elif pod is None:
            self._pods.pop(uid, None)
        gang = succeeded_gang(pod) or self.sets.succeeded_gang(pod) if pod is not None else ""
        known = self._gangs.pop(uid, "")
        if gang:
            self._gangs[uid] = gang
        if gang != known:
            self._succeeded.update({gang: 1} if gang else {})
            self._succeeded.subtract({known: 1} if known else {})
            self._succeeded += Counter()  # drops zeros

    def take_set(self, resource: Resource, old: Obj | None, new: Obj | None) -> Iterator[tuple[str, SetGang]]:
        """Take a set as it is now, and yield the gang of each pod that is of one, by its uid."""
        if new is not None:
            self.sets.take(resource, [new])
        elif old is not None:
            self.sets.drop(resource, old)
        for uid, pod in list(self._pods.items()):
            self.take_pod(uid, pod)
            yield uid, self.sets.gang_of(pod)
