"""The pods that hold room: by node, by gang, by queue, by job. Changed one pod at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gangline.placement.affinity.affinity_index import AffinityIndex
from gangline.placement.affinity.preferences import preferences
from gangline.placement.fit import SPREAD_STEP
from gangline.placement.free_resources import Ints
from gangline.placement.gangs import DEPTH_MAX, Group
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import DEFAULT_QUEUE
from gangline.placement.preemption.disruption import DisruptionBudget, Guarded
from gangline.placement.service import AttainedService
from gangline.placement.snapshot import PodView, Snapshot

PREFERRED_STEP = 16 * SPREAD_STEP
"""How much less crowded a node counts for each unit of weight of a preferred rule: more than jobs weigh."""


def gang_key(pod: PodView) -> str:
    """Return the key of a pod's gang; a pod of none is a gang of its own."""
    return pod.gang or pod.key


class Allocations:
    """All pods that are bound or about to be, and not finished.

    Args:
        pods: to begin with.
        groups: what is said about gangs; looked at when a pod is added, for the queue that it uses.
    """

    def __init__(self, pods: Iterable[PodView] = (), groups: Mapping[str, Group] | None = None) -> None:
        self.groups: Mapping[str, Group] = groups if groups is not None else {}
        self.by_node: dict[str, dict[str, PodView]] = {}
        self.by_gang: dict[str, dict[str, PodView]] = {}
        self.used: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.limited: dict[str, PodView] = {}
        self._ending: Counter[str] = Counter()
        self._priorities: Counter[int] = Counter()
        self._by_uid: dict[str, tuple[PodView, str, int]] = {}
        self._by_job: dict[str, Counter[tuple[str, str]]] = {}
        self.affinity_index = AffinityIndex(self)
        self.over: set[str] = set()
        """Jobs that are finished, by ``NAMESPACE/JOB``: pods of them that hold room are idle."""
        self.succeeded: Counter[str] = Counter()
        """By gang, how many of its pods have succeeded and keep their places in it."""
        self.services: dict[str, AttainedService] = {}
        """By gang, what it has had before its present run, and whether it can be interrupted."""
        self.leaving: set[str] = set()
        """Gangs that are about to be suspended: their pods will go."""
        self.budgets: dict[str, DisruptionBudget] = {}
        """How many pods may go at once, by the key of the PodDisruptionBudget."""
        self.add_all(pods)

    @classmethod
    def of(cls, snapshot: Snapshot, groups: Mapping[str, Group]) -> Allocations:
        """Return what a snapshot tells."""
        found = cls(snapshot.pods, groups)
        found.succeeded.update(snapshot.succeeded)
        found.services.update(snapshot.services)
        found.leaving.update(snapshot.leaving)
        found.budgets.update((budget.key, budget) for budget in snapshot.budgets)
        return found

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[PodView]:
        return (pod for pod, _, _ in self._by_uid.values())

    def get(self, uid: str) -> PodView | None:
        """Return the pod of an identity."""
        found = self._by_uid.get(uid)
        return found[0] if found else None

    def add(self, pod: PodView) -> None:
        """Add a pod, or replace it."""
        self.add_all((pod,))

    def add_all(self, pods: Iterable[PodView]) -> None:
        """Add pods, or replace them. Cost: 2 µs a pod, and 1 µs for each gang."""
        known: dict[tuple[str, str, int], tuple[str, int, Counter[str]]] = {}
        by_uid, by_node, by_gang = self._by_uid, self.by_node, self.by_gang
        for pod in pods:
            uid, said = pod.uid, (pod.gang, pod.queue, pod.priority)
            if uid in by_uid:
                self.remove(uid)
            if said not in known:
                queue, priority = self.queue_of(pod), self.priority_of(pod)
                known[said] = queue, priority, self.used[queue]
            queue, priority, used = known[said]
            by_uid[uid] = (pod, queue, priority)
            self.affinity_index.add(pod)
            held = by_node.get(pod.node_name)
            if held is None:
                held = by_node[pod.node_name] = {}
            held[uid] = pod
            key = gang_key(pod)
            members = by_gang.get(key)
            if members is None:
                members = by_gang[key] = {}
            members[uid] = pod
            _add_amounts(used, pod.request, 1)
            self._priorities[priority] += 1
            if pod.is_ending:
                self._ending[key] += 1
            if self.limit_of(pod) is not None:
                self.limited[uid] = pod
            if pod.job:
                self._by_job.setdefault(pod.job, Counter())[pod.node_name, pod.replica_type] += 1

    def remove(self, uid: str) -> PodView | None:
        """Remove a pod, and return it."""
        found = self._by_uid.pop(uid, None)
        if found is None:
            return None
        pod, queue, priority = found  # as they were when it came
        self.affinity_index.remove(pod)
        _discard(self.by_node, pod.node_name, uid)
        _discard(self.by_gang, gang_key(pod), uid)
        _add_amounts(self.used[queue], pod.request, -1)
        if pod.is_ending:
            self._ending[gang_key(pod)] -= 1
            self._ending += Counter()  # drops zeros
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        self.limited.pop(uid, None)
        if pod.job:
            job = self._by_job[pod.job]
            job[pod.node_name, pod.replica_type] -= 1
            if not any(job.values()):
                del self._by_job[pod.job]
        return pod

    def queue_of(self, pod: PodView) -> str:
        """Return the queue whose quota a pod uses."""
        group = self.groups.get(pod.gang)
        return (group.queue if group else "") or pod.queue or DEFAULT_QUEUE

    def priority_of(self, pod: PodView) -> int:
        """Return the priority of the group of groups that a pod is in, else of its gang, else its own."""
        group = self.groups.get(pod.gang)
        if group is None:
            return pod.priority
        known = (one.priority for one in (*reversed(self.above(group)), group))
        return next((priority for priority in known if priority is not None), pod.priority)

    def above(self, group: Group | None) -> list[Group]:
        """Return the groups of groups that a group is in, the nearest first."""
        found: list[Group] = []
        while group is not None and group.parent and len(found) < DEPTH_MAX:
            group = self.groups.get(group.parent)
            found += [group] if group is not None else []
        return found

    def limit_of(self, pod: PodView) -> float | None:
        """Return for how many seconds a pod may run at most, or None when nobody knows."""
        group = self.groups.get(pod.gang)
        return group.limit_s if group is not None and group.limit_s is not None else pod.limit_s

    def guarded(self, pods: Iterable[PodView]) -> Guarded:
        """Return which budgets the end of these pods would use. Cost: 1 µs for each pod and budget."""
        if not self.budgets:
            return ()
        named = ((pod.namespace, pod.key.partition("/")[2], pod.labels) for pod in pods)
        found = (tuple(budget for budget in self.budgets.values() if budget.counts(*pod)) for pod in named)
        return tuple(own for own in found if own)

    def has_weaker(self, priority: int) -> bool:
        """Return whether a pod of less priority holds room. Cost: one step for each priority in use."""
        return any(value < priority for value in self._priorities)

    def used_by(self, queue: str) -> Counter[str]:
        """Return what the pods of a queue hold together."""
        return self.used[queue]

    def placed(self, gang: str) -> int:
        """Return how many pods of a gang hold room and stay, or have succeeded."""
        return len(self.by_gang.get(gang, ())) - self._ending[gang] + self.succeeded[gang]

    def disrupted_together(self) -> Iterator[tuple[str, tuple[PodView, ...]]]:
        """Yield what gives way as a whole, by its key: gangs, groups of them, pods of a loose group."""
        wider: dict[str, list[PodView]] = {}
        for key, pods in self.by_gang.items():
            group = self.groups.get(key)
            whole = next((one.key for one in reversed(self.above(group)) if one.is_disrupted_whole), key)
            if whole != key:
                wider.setdefault(whole, []).extend(pods.values())
            elif group is None or group.is_disrupted_whole:
                yield key, tuple(pods.values())
            else:
                yield from ((pod.key, (pod,)) for pod in pods.values())
        yield from ((key, tuple(pods)) for key, pods in wider.items())

    def spread_counts(self, table: NodeTable, pod: PodView) -> Ints | None:
        """Return how crowded each node is for the pod, by its job and its preferences; None when equally."""
        job = self._by_job.get(pod.job) if pod.job else None
        preferred = preferences(table, pod)
        if not job and preferred is None:
            return None
        spread_counts = np.zeros(len(table), np.int64)
        for (node, role), count in job.items() if job else ():
            index = table.index(node)
            if index >= 0:
                spread_counts[index] += count * (SPREAD_STEP if role == pod.replica_type else 1)
        return spread_counts if preferred is None else spread_counts - PREFERRED_STEP * preferred


def _add_amounts(total: Counter[str], amounts: dict[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        total[name] += sign * amount


def _discard(entries_by_key: dict[str, dict[str, PodView]], key: str, uid: str) -> None:
    entries = entries_by_key[key]
    del entries[uid]
    if not entries:
        del entries_by_key[key]
