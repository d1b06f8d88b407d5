"""Which gangs give way to one of higher priority, or to one whose queue takes back what another has borrowed.

Victims are whole gangs of lower priority. A gang of a queue within what it deserves may also take back what
another queue has borrowed; one that borrows takes nothing from those that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.preemption.victims import RunningGang, running_gang, search
from gangline.placement.quota import borrows, is_over, queue_of
from gangline.placement.snapshot import PodView


def find_victims(
    table: NodeTable,
    allocations: Allocations,
    gang: Gang,
    policy: Policy,
    now: datetime,
    is_cut: Callable[[Sequence[Spot]], bool] = lambda spots: False,
) -> dict[str, tuple[PodView, ...]]:
    """Return what has to end so that a gang fits, by key with its pods; empty when nothing would help.

    As a rule a gang; the groups of a CompositePodGroup that gives way as a whole, or single pods of a group
    that does not.

    Nobody ends for a place that the gang would not take now, since ``is_cut`` says that it is cut there.

    Cost: some 20 trials for each domain that is looked at; nothing when no running gang has less priority.
    """
    is_entitled = bool(policy.queues) and not _borrows(queue_of(gang), gang.request, allocations, policy)
    if any(pod.refusal for pod in gang.pods) or not (allocations.has_weaker(gang.priority) or is_entitled):
        return {}
    may_take = _permission(gang, allocations, policy)
    running = (running_gang(key, pods, allocations, now) for key, pods in allocations.disrupted_together())
    weaker = [one for one in running if may_take(one)]
    if not weaker:
        return {}

    def fits(room: FreeResources, within: Bools | None) -> bool:
        spots = place(table, room, gang, within=within)
        return spots is not None and not is_cut(spots)

    return {one.key: one.pods for one in search(table, table.room, gang, weaker, fits)}


def _borrows(name: str, request: Mapping[str, int], allocations: Allocations, policy: Policy) -> bool:
    queue = policy.queues.get(name)
    return queue is not None and borrows(queue, allocations.used_by(name), request)


def _permission(gang: Gang, allocations: Allocations, policy: Policy) -> Callable[[RunningGang], bool]:
    """Return which running gangs this one may take room from."""
    own = queue_of(gang)
    is_borrowing = _borrows(own, gang.request, allocations, policy)
    borrowers = {name for name, queue in policy.queues.items() if is_over(queue, allocations.used_by(name))}

    def may_take(running: RunningGang) -> bool:
        is_new = running.ran_s <= 0 < len(running.pods[0].started)
        if running.key == gang.key or is_new:
            return False
        is_lower = running.priority < gang.priority
        if running.queue == own:
            return is_lower
        if running.queue in borrowers:
            return is_lower or (not is_borrowing and policy.queues[running.queue].is_reclaimable)
        return is_lower and not is_borrowing

    return may_take
