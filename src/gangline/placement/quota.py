"""Queues: who is next, and who may not start because of a quota.

The quota of a queue is what its ``capability`` says; what it ``deserved`` and does not use others may borrow,
as long as nobody of a queue within its own waits. What is guaranteed to a queue nobody else may use.
Source of the terms: Volcano's Queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.gangs import Gang
from gangline.placement.node_table import NodeTable
from gangline.placement.policy import DEFAULT_QUEUE, Policy, Queue

_NO_QUEUE = Queue(name="")


def queue_of(gang: Gang) -> str:
    """Return the name of the queue of a gang."""
    return gang.group.queue or gang.pods[0].queue or DEFAULT_QUEUE


def quota_refusal(
    gang: Gang, policy: Policy, allocations: Allocations, table: NodeTable
) -> tuple[str, str] | None:
    """Return (``Quota``, why) when the gang would use more than its queue may."""
    name = queue_of(gang)
    queue = policy.queues.get(name, _NO_QUEUE)
    used = allocations.used_by(name)
    for resource, most in sorted(queue.capability.items()):
        asked = gang.request.get(resource, 0)
        if asked and used.get(resource, 0) + asked > most:
            return (
                "Quota",
                f"queue {name} may use {most} {resource}, has {used.get(resource, 0)} in use and the gang "
                f"asks for {asked}",
            )
    return _guarantee_refusal(gang, name, policy, allocations, table)


def _guarantee_refusal(
    gang: Gang, name: str, policy: Policy, allocations: Allocations, table: NodeTable
) -> tuple[str, str] | None:
    """Return why the gang would use what is kept for other queues."""
    for resource, asked in sorted(gang.request.items()):
        kept = sum(
            max(other.guarantee.get(resource, 0) - allocations.used_by(other.name)[resource], 0)
            for other in policy.queues.values()
            if other.name != name
        )
        if not asked or not kept:
            continue
        total = table.total(resource)
        used = sum(used[resource] for used in allocations.used.values())
        if used + kept + asked > total:
            return "Quota", f"{kept} {resource} are kept for other queues; {total - used - kept} are left"
    return None


def share(queue: Queue, used: Mapping[str, int]) -> float:
    """Return how much of its due a queue uses: the largest over resources of used / (deserved x weight)."""
    shares = [used.get(resource, 0) / amount for resource, amount in queue.deserved.items() if amount]
    return max(shares, default=0.0) / queue.weight


def borrows(queue: Queue, used: Mapping[str, int], request: Mapping[str, int]) -> bool:
    """Return whether a request takes a queue beyond what it deserves."""
    return any(
        used.get(resource, 0) + request.get(resource, 0) > amount
        for resource, amount in queue.deserved.items()
        if request.get(resource, 0)
    )


def is_over(queue: Queue, used: Mapping[str, int]) -> bool:
    """Return whether a queue uses more than it deserves."""
    return any(used.get(resource, 0) > amount for resource, amount in queue.deserved.items())


class QueueLine:
    """The waiting gangs in the order in which they are considered.

    Args:
        gangs: all that wait.
        policy: with the queues.
        allocations: for what queues use; looked at again after each gang that is placed.
        now: for the age of gangs.

    Cost: one sort, then one step for each queue and gang.
    """

    def __init__(
        self, gangs: Sequence[Gang], policy: Policy, allocations: Allocations, now: datetime
    ) -> None:
        self._policy = policy
        self._allocations = allocations
        self._now = now
        self._lines: dict[str, list[Gang]] = {}
        self._waiting: dict[str, int] = {}
        self._blocked: set[str] = set()
        self._overdue = {id(gang): self._is_overdue(gang) for gang in gangs}
        for gang in sorted(gangs, key=self._order, reverse=True):
            self._lines.setdefault(queue_of(gang), []).append(gang)

    def next(self) -> Gang | None:
        """Return the gang to consider now, and forget it; None at the end."""
        best = min(self._lines, key=self._rank, default=None)
        if best is None:
            return None
        line = self._lines[best]
        gang = line.pop()
        if not line:
            del self._lines[best]
        return gang

    def waiting(self, gang: Gang, *, blocks: bool) -> int:
        """Note that a gang waits, and return its place in its queue, from 1."""
        name = queue_of(gang)
        self._waiting[name] = self._waiting.get(name, 0) + 1
        if blocks and self._queue(name).is_strict:
            self._blocked.add(name)
        return self._waiting[name]

    def is_blocked(self, gang: Gang) -> bool:
        """Return whether an earlier gang of a strict queue waits."""
        return queue_of(gang) in self._blocked

    def is_overdue(self, gang: Gang) -> bool:
        """Return whether a gang has waited longer than the policy's bound."""
        return self._overdue.get(id(gang), False) or self._is_overdue(gang)

    def _is_overdue(self, gang: Gang) -> bool:
        if not gang.created:
            return False
        age_s = (self._now - parse_time(gang.created)).total_seconds()
        return age_s > self._policy.overdue_after_s and age_s > self._policy.overdue_s(gang.devices)

    def _queue(self, name: str) -> Queue:
        return self._policy.queues.get(name, _NO_QUEUE)

    def _order(self, gang: Gang) -> tuple[int, bool, bool, str, str]:
        had = self._allocations.services.get(gang.key)
        is_late = had is not None and self._policy.suspension.is_long(had.device_s)
        return -gang.priority, not self._overdue[id(gang)], is_late, gang.created, gang.key

    def _rank(self, name: str) -> tuple[int, bool, int, bool, bool, float, str, str]:
        gang = self._lines[name][-1]
        priority, is_in_time, is_late, created, key = self._order(gang)
        queue, used = self._queue(name), self._allocations.used_by(name)
        is_borrowing = borrows(queue, used, gang.request)
        used_share = share(queue, used)
        return -queue.priority, is_borrowing, priority, is_in_time, is_late, used_share, created, key
