"""Least attained service in two queues: gangs that have had much give way to those that have had little.

Nobody says how long a training job runs, but one that has run for long will, as a rule, run for long yet. So
gangs that have had fewer device-seconds than a boundary go first, and one of those that waits may have others
suspended that have had more, if these can go on from a checkpoint. Source: Tiresias, NSDI'19 (discretised
two-dimensional least attained service).

What bounds that: a gang runs for a minimum time each time, it is suspended a few times at most, and nobody of
higher priority is suspended. A suspended gang waits like any other, and is overdue like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot
from gangline.placement.decisions import Suspension
from gangline.placement.fit import place
from gangline.placement.gangs import Gang
from gangline.placement.node_table import Bools, FreeResources, NodeTable
from gangline.placement.policy import Policy
from gangline.placement.service import Service
from gangline.placement.victims import RunningGang, running_gang, search


def attained(running: RunningGang, services: Mapping[str, Service]) -> float:
    """Return how many device-seconds a gang has had, those before earlier suspensions included."""
    return services.get(running.key, Service()).device_s + running.ran_s * running.devices


def find_suspensions(
    table: NodeTable,
    room: FreeResources,
    allocations: Allocations,
    gang: Gang,
    policy: Policy,
    now: datetime,
    is_cut: Callable[[Sequence[Spot]], bool],
) -> list[RunningGang]:
    """Return the gangs to suspend so that this one fits; none when that would not help, or is not allowed.

    Args:
        table: the nodes.
        room: what is free, or about to be, and not kept for others.
        allocations: the pods that hold room.
        gang: that waits; it has had less than the boundary.
        policy: the boundary and the bounds.
        now: the time.
        is_cut: whether the gang would not take some places now.
    """
    if any(pod.refusal for pod in gang.pods):
        return []
    services = allocations.services
    candidates = []
    for key, service in services.items():
        if not service.is_resumable or service.suspensions >= policy.suspensions_max:
            continue
        if key in allocations.leaving:
            continue
        pods = allocations.by_gang.get(key)
        if not pods or key == gang.key or any(pod.is_ending for pod in pods.values()):
            continue
        running = running_gang(key, list(pods.values()), allocations, now)
        if (
            running.priority <= gang.priority
            and running.ran_s >= policy.min_run_s
            and policy.is_long(attained(running, services))
        ):
            lost = running.lost + policy.restart_s * running.devices
            candidates.append(msgspec.structs.replace(running, lost=lost))

    def fits(free: FreeResources, within: Bools | None) -> bool:
        spots = place(table, free, gang, within=within)
        return spots is not None and not is_cut(spots)

    return search(table, room, gang, candidates, fits) if candidates else []


def suspension(
    running: RunningGang, beneficiary: str, policy: Policy, allocations: Allocations
) -> Suspension:
    """Return that a gang is suspended for another."""
    services = allocations.services
    return Suspension(
        gang=running.key,
        uids=tuple(pod.uid for pod in running.pods),
        beneficiary=beneficiary,
        device_s=attained(running, services),
        number=services.get(running.key, Service()).suspensions + 1,
        number_max=policy.suspensions_max,
    )
