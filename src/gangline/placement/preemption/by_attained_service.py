"""Least attained service in two queues: gangs that have had much give way to those that have had little.

Nobody says how long a training job runs, but one that has run for long will, as a rule, run for long yet. So
gangs that have had fewer device-seconds than a boundary go first, and one of those that waits may have others
suspended that have had more, if these can go on from a checkpoint. Once it has waited for some minutes that
may be others below the boundary, too, which have had more than it: short gangs that lie in a rack give way to
a large one for moments, since they find room elsewhere. Source: Tiresias, NSDI'19 (discretised
two-dimensional least attained service).

What bounds that: a gang runs for a minimum time each time, it is suspended a few times at most, and nobody of
higher priority is suspended. A suspended gang waits like any other, and is overdue like any other; from then
on it has those suspended that have had more than it, whatever it has had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from math import inf

import msgspec

from gangline.clock import parse_time
from gangline.placement.allocations import Allocations
from gangline.placement.capacity import Spot
from gangline.placement.decisions import Suspension
from gangline.placement.free_resources import FreeResources
from gangline.placement.gangs import Gang, GangShape
from gangline.placement.node_table import Bools, NodeTable
from gangline.placement.place import place
from gangline.placement.policy import Policy
from gangline.placement.preemption.disruption import violations
from gangline.placement.preemption.victims import RunningGang, running_gang, search
from gangline.placement.reserve import release
from gangline.placement.service import AttainedService

FORMS_TRIED_MAX = 8
"""Forms of gangs for which nobody could be suspended, after which no more are tried in a pass."""


class Suspender:
    """Finds in one pass who is suspended for whom.

    Args:
        table: the nodes.
        allocations: the pods that hold room, what gangs have had, and who is leaving.
        policy: the boundary and the bounds.
        now: the time.
        is_cut: whether a gang would not take some places now.
    """

    def __init__(
        self,
        table: NodeTable,
        allocations: Allocations,
        policy: Policy,
        now: datetime,
        is_cut: Callable[[Gang, Sequence[Spot]], bool],
    ) -> None:
        self._table = table
        self._allocations = allocations
        self._policy, self._bounds = policy, policy.suspension
        self._now = now
        self._is_cut = is_cut
        self._unhelped: dict[GangShape, float] = {}
        self.decided: list[Suspension] = []
        """In the order in which they were decided."""

    def room_for(self, gang: Gang, form: GangShape | None, room: FreeResources) -> tuple[str, set[str]]:
        """Decide who is suspended for a gang; return that in words, and the pods whose room will be free.

        Gangs that are leaving already count as gone: nobody is suspended for room that comes anyway.

        Args:
            gang: that waits.
            form: what decides alone whether it fits, if anything does.
            room: what is free and not kept for others.

        Cost: nothing while no gang can be suspended; else that of a search for victims.
        """
        allocations = self._allocations
        is_off = not self._bounds.long_after_device_s or not allocations.services
        if is_off or any(pod.refusal for pod in gang.pods):
            return "", set()
        least_s = self._least_s(gang)
        is_tried = form is not None and self._unhelped.get(form, inf) <= least_s
        if least_s == inf or is_tried or len(self._unhelped) >= FORMS_TRIED_MAX:
            return "", set()

        def fits(free: FreeResources, within: Bools | None) -> bool:
            spots = place(self._table, free, gang, within=within)
            return spots is not None and not self._is_cut(gang, spots)

        leaving = sorted(key for key in allocations.leaving if key in allocations.by_gang)
        pods = [pod for key in leaving for pod in allocations.by_gang[key].values()]
        uids = {pod.uid for pod in pods}
        if pods:
            room = room.copy()
            release(self._table, room, pods)
            if fits(room, None):
                return f"{leaving[0]} is being suspended", uids
        chosen = search(self._table, room, gang, self._candidates(gang, least_s), fits)
        if not chosen:
            if form is not None:
                self._unhelped[form] = least_s
            return "", set()
        for running in chosen:
            self._decide(running, gang)
        names = ", ".join(running.key for running in chosen)
        return (
            f"suspended for it, since they have had more: {names}",
            uids.union(pod.uid for running in chosen for pod in running.pods),
        )

    def _candidates(self, gang: Gang, least_s: float) -> list[RunningGang]:
        """Return who has had so many device-seconds and may be suspended for a gang."""
        leaving = self._allocations.leaving
        return [
            running
            for running, had_s in self._suspendable
            if had_s >= least_s
            and running.priority <= gang.priority
            and running.key != gang.key
            and running.key not in leaving
        ]

    def _least_s(self, gang: Gang) -> float:
        """Return how many device-seconds others must have had to be suspended for a gang; inf: none is.

        One that has waited long enough has those suspended that have had more than it: below the boundary
        after minutes, beyond it once it is overdue, so that the room that is kept for it does not stand idle.
        """
        had = self._allocations.services.get(gang.key, AttainedService())
        is_long = self._bounds.is_long(had.device_s)
        waited_s = (self._now - parse_time(gang.created)).total_seconds() if gang.created else 0.0
        if waited_s >= (self._policy.overdue_s(gang.devices) if is_long else self._bounds.short_wait_s):
            return had.device_s + 1
        return inf if is_long else self._bounds.long_after_device_s

    @cached_property
    def _suspendable(self) -> list[tuple[RunningGang, float]]:
        """Who may be suspended, and the device-seconds each has had. Cost: 10 µs for each that can go on."""
        allocations, bounds = self._allocations, self._bounds
        found: list[tuple[RunningGang, float]] = []
        for key, service in allocations.services.items():
            if not service.is_resumable or service.suspensions >= bounds.suspensions_max:
                continue
            pods = allocations.by_gang.get(key)
            if not pods or any(pod.is_ending for pod in pods.values()):
                continue
            running = running_gang(key, list(pods.values()), allocations, self._now)
            if running.ran_s >= bounds.min_run_s and not any(violations([running.guarded])):
                lost = running.lost + self._policy.restart_s * running.devices
                found.append((msgspec.structs.replace(running, lost=lost), attained(running, service)))
        return found

    def _decide(self, running: RunningGang, gang: Gang) -> None:
        service = self._allocations.services[running.key]
        self._allocations.leaving.add(running.key)
        self.decided.append(
            Suspension(
                gang=running.key,
                uids=tuple(pod.uid for pod in running.pods),
                beneficiary=gang.key,
                device_s=attained(running, service),
                number=service.suspensions + 1,
                number_max=self._bounds.suspensions_max,
            )
        )


def attained(running: RunningGang, service: AttainedService) -> float:
    """Return how many device-seconds a gang has had, those before earlier suspensions included."""
    return service.device_s + running.ran_s * running.devices
