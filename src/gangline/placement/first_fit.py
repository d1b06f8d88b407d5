"""Place pods one by one where they fit.

Pods are considered by priority, then age, then key. Of the nodes that can take a pod, the one with the fewest
pods of the same job and replica type wins, then the one with the fewest pods of the job, then the first
by name: four workers on two nodes are two and two, and a pod of no job goes to the first node. The same
input gives the same decisions. Nothing is preempted.

Not served: required pod affinity (such a pod is reported as unschedulable), topology spread, preferences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from gangline.placement.amounts import PODS
from gangline.placement.decisions import Binding, Decisions, Unschedulable
from gangline.placement.filters import refusal
from gangline.placement.snapshot import NodeView, PodView, Snapshot

NO_NODES = "no nodes available to schedule pods"
NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"


class _Room:
    """What one node has left while a pass goes on."""

    __slots__ = ("free", "jobs", "node", "ports")

    def __init__(self, node: NodeView) -> None:
        self.node = node
        self.free = dict(node.allocatable)
        self.ports: set[tuple[str, int]] = set()
        self.jobs: Counter[tuple[str, str]] = Counter()

    def take(self, pod: PodView) -> None:
        for name, amount in pod.request.items():
            self.free[name] = self.free.get(name, 0) - amount
        self.ports |= pod.host_ports
        if pod.job:
            self.jobs[pod.job, pod.replica_type] += 1
            self.jobs[pod.job, "*"] += 1

    def shortfalls(self, pod: PodView) -> list[str]:
        """Return every reason why there is no room for the pod; empty when there is."""
        if pod.host_ports and not self.ports.isdisjoint(pod.host_ports):
            return [NO_FREE_PORTS]
        free = self.free
        return [
            TOO_MANY_PODS if name == PODS else f"Insufficient {name}"
            for name, amount in pod.request.items()
            if amount > free.get(name, 0)
        ]

    def crowding(self, pod: PodView) -> tuple[int, int]:
        return (self.jobs[pod.job, pod.replica_type], self.jobs[pod.job, "*"]) if pod.job else (0, 0)


def schedule(snapshot: Snapshot, pods: Iterable[PodView], *, now: datetime) -> Decisions:
    """Decide where the pods go; those with scheduling gates are left out.

    Args:
        snapshot: nodes, and the pods that hold room on them; nothing in it is changed.
        pods: pods without a node.
        now: the time of the pass; this placement does not depend on it, gangs that wait do.

    Returns:
        One binding or one unschedulable entry for each pod that is considered, never more on a node than its
        allocatable. A message counts the reasons over all nodes as Kubernetes does:
        ``0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.``

    Cost: O(pods x nodes); pods of one shape that fit nowhere are judged once.
    """
    del now
    rooms = [_Room(node) for node in sorted(snapshot.nodes, key=lambda node: node.name)]
    by_name = {room.node.name: room for room in rooms}
    for pod in snapshot.pods:
        if room := by_name.get(pod.node_name):
            room.take(pod)
    bindings: list[Binding] = []
    unschedulable: list[Unschedulable] = []
    verdicts: dict[bytes, str] = {}
    allowed: dict[bytes, list[_Room]] = {}
    for pod in sorted(pods, key=_order):
        if pod.gated:
            continue
        message = verdicts.get(pod.shape, "") if pod.shape else ""
        if not message:
            best = _choose(rooms, pod, allowed)
            if best is not None:
                best.take(pod)
                bindings.append(Binding(pod.key, pod.uid, best.node.name))
                continue
            # Room only shrinks during a pass, so the verdict holds for every later pod of this shape.
            message = verdicts[pod.shape] = _explain(rooms, pod)
        unschedulable.append(Unschedulable(pod.key, pod.uid, message))
    return Decisions(bindings=tuple(bindings), unschedulable=tuple(unschedulable))


def _order(pod: PodView) -> tuple[int, str, str]:
    return (-pod.priority, pod.created, pod.key)


def _choose(rooms: list[_Room], pod: PodView, allowed: dict[bytes, list[_Room]]) -> _Room | None:
    if pod.refusal:
        return None
    candidates = allowed.get(pod.shape) if pod.shape else None
    if candidates is None:
        candidates = allowed[pod.shape] = [room for room in rooms if not refusal(room.node, pod)]
    feasible = (room for room in candidates if not room.shortfalls(pod))
    return min(feasible, key=lambda room: room.crowding(pod), default=None)


def _explain(rooms: list[_Room], pod: PodView) -> str:
    """Return the message of a pod that fits nowhere: the reasons of all nodes, counted and sorted."""
    if pod.refusal:
        return f"0/{len(rooms)} nodes are available: {pod.refusal}."
    if not rooms:
        return NO_NODES
    reasons: Counter[str] = Counter()
    for room in rooms:
        reason = refusal(room.node, pod)
        reasons.update([reason] if reason else room.shortfalls(pod))
    counted = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(rooms)} nodes are available: {', '.join(counted)}."
