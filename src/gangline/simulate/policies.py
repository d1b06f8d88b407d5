"""The policies of a replay: Gangline's own scheduling pass, and simpler ones beside it.

=================  ======================================================================================
``gangline``       the scheduling pass as it is: racks and blocks, nodes and GPUs by their wires, best effort
                   with room kept for what is overdue; nobody is suspended
``resumable``      the same, and every job can go on from a checkpoint: gangs that have had much are
                   suspended for those that have had little
``rack-only``      as ``gangline``, on nodes that publish no links: the stock device plugin hands out the
                   lowest ids
``best-fit``       the fewest nodes, the fullest that takes the job or its rest; what fits may pass
``first-fit``      pod after pod on the first node by name; strict first in, first out
``kueue-tas``      the narrowest rack or block that holds the job, the fewest nodes there; what fits may pass,
                   no room is kept: Kueue's topology-aware scheduling with BestEffortFIFO
``kube-gangs``     pod after pod on the emptiest node, whole or not at all; what fits may pass: the pod group
                   cycle of kube-scheduler with its default scores
``easy-1.5``       EASY backfill, with what users say: 1 to 1.5 times the truth; nodes as ``kueue-tas``
``easy-10``        the same, 1 to 10 times the truth
``easy-0.3-10``    the same, 0.3 to 10 times the truth
``las``            two queues by attained service; the first are served, whoever runs beside them is suspended
                   without further bounds; nodes as ``kueue-tas``
=================  ======================================================================================

All start a job whole or not at all. All but ``gangline``, ``resumable`` and ``rack-only`` hand out the lowest
ids of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from gangline.placement import (
    AttainedService,
    Binding,
    Gang,
    Group,
    NodeTable,
    PodView,
    Policy,
    SchedulingCycle,
    Suspension,
)
from gangline.placement.allocations import Allocations
from gangline.placement.fit import fewest
from gangline.simulate.moves import Masks, Moves
from gangline.simulate.peers import (
    EasyScheduler,
    FitScheduler,
    LeastServiceScheduler,
    by_domains,
    emptiest,
    first_fit,
)
from gangline.simulate.pods import gang_of, moment
from gangline.simulate.site import Site
from gangline.simulate.trace import TraceJob
from gangline.topology import mask_of, members
from gangline.workloads.requests import GPU


class ReplayPolicy(Protocol):
    """Who decides in a replay. It is told of arrivals and ends, and asked after them."""

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""

    def decide(self, now_s: float) -> Moves:
        """Return what happens now."""


class PassScheduler:
    """Asks :class:`gangline.placement.cycle.SchedulingCycle`, as the scheduler of a cluster does.

    Args:
        site: the simulated cluster.
        with_links: nodes publish their links; without, the stock device plugin takes the lowest ids.
        policy: how long what waits is waited for; levels are the site's, and nobody gives way.
        is_resumable: all jobs go on from a checkpoint, so that they may be suspended.
    """

    def __init__(
        self, site: Site, policy: Policy, *, with_links: bool = True, is_resumable: bool = False
    ) -> None:
        levels = tuple(level.label for level in site.levels)
        self._policy = replace(policy, levels=levels, may_preempt=False)
        self._table = NodeTable.of(site.node_views(with_links=with_links), (), levels)
        self._groups: dict[str, Group] = {}
        self._allocations = Allocations((), self._groups)
        self._plugin = [site.everything] * site.nodes
        self._with_links = with_links
        self._is_resumable = is_resumable
        self._waiting: dict[str, tuple[TraceJob, Gang]] = {}
        self._running: dict[str, tuple[TraceJob, list[PodView], Masks]] = {}

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""
        self._wait(job, gang_of(job))
        if self._is_resumable:
            self._allocations.services[gang_of(job).key] = AttainedService(is_resumable=True)

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""
        self._free(job.name)
        self._allocations.services.pop(gang_of(job).key, None)

    def decide(self, now_s: float) -> Moves:
        """Return what happens now: passes until none suspends a job, since their room is free at once."""
        moves = Moves([], [])
        while self._waiting:
            gangs = [gang for _, gang in self._waiting.values()]
            cycle = SchedulingCycle(self._table, self._allocations, self._policy, now=moment(now_s))
            decisions = cycle.run(gangs)
            moves.started.extend(self._start(decisions.bindings))
            for suspension in decisions.suspensions:
                moves.suspended.append(self._suspend(suspension, now_s))
            if not decisions.suspensions:
                break
        return moves

    def _wait(self, job: TraceJob, gang: Gang) -> None:
        self._waiting[job.name] = job, gang
        if len(gang.pods) > 1:
            self._groups[gang.key] = gang.group

    def _start(self, bindings: Iterable[Binding]) -> list[tuple[TraceJob, Masks]]:
        placed: dict[str, list[PodView]] = {}
        masks: dict[str, Masks] = {}
        for binding in bindings:
            name = binding.pod.partition("/")[0]
            pod = self._allocations.get(binding.uid)
            assert pod is not None
            placed.setdefault(name, []).append(pod)
            row = self._table.index(binding.node)
            mask = mask_of(binding.indices) if self._with_links else self._handed_out(row, pod)
            own = masks.setdefault(name, {})
            own[row] = own.get(row, 0) | mask
        started = []
        for name, pods in placed.items():
            job = self._waiting.pop(name)[0]
            self._running[name] = job, pods, masks[name]
            started.append((job, masks[name]))
        return started

    def _suspend(self, suspension: Suspension, now_s: float) -> TraceJob:
        job = self._free(suspension.gang.partition("/")[0])
        self._allocations.leaving.discard(suspension.gang)
        self._allocations.services[suspension.gang] = AttainedService(
            is_resumable=True, device_s=suspension.device_s, suspensions=suspension.number
        )
        self._wait(job, gang_of(job, since_s=now_s))
        return job

    def _free(self, name: str) -> TraceJob:
        job, pods, masks = self._running.pop(name)
        for pod in pods:
            self._allocations.remove(pod.uid)
        self._groups.pop(name, None)
        room = self._table.room
        for pod in pods:
            row = self._table.index(pod.node_name)
            for column, amount in self._table.amounts(pod):
                room.free[row, column] += amount
        for row, mask in masks.items():
            if self._with_links:
                room.gpus[row] |= mask
            self._plugin[row] |= mask
            room.renew(row)
        return job

    def _handed_out(self, row: int, pod: PodView) -> int:
        """Return the GPUs that the stock device plugin hands to a pod: the lowest free ones."""
        mask = mask_of(members(self._plugin[row])[: pod.request[GPU]])
        self._plugin[row] &= ~mask
        return mask


def _easy(least: float, most: float) -> Callable[[Site, Policy], ReplayPolicy]:
    return lambda site, _: EasyScheduler(site, by_domains(site), least, most)


POLICIES: dict[str, Callable[[Site, Policy], ReplayPolicy]] = {
    "gangline": lambda site, policy: PassScheduler(site, policy),
    "resumable": lambda site, policy: PassScheduler(site, policy, is_resumable=True),
    "rack-only": lambda site, policy: PassScheduler(site, policy, with_links=False),
    "best-fit": lambda site, _: FitScheduler(site, fewest),
    "first-fit": lambda site, _: FitScheduler(site, first_fit, is_strict=True),
    "kueue-tas": lambda site, _: FitScheduler(site, by_domains(site)),
    "kube-gangs": lambda site, _: FitScheduler(site, emptiest),
    "easy-1.5": _easy(1.0, 1.5),
    "easy-10": _easy(1.0, 10.0),
    "easy-0.3-10": _easy(0.3, 10.0),
    "las": lambda site, policy: LeastServiceScheduler(site, by_domains(site), policy),
}
"""Fresh schedulers by name; those that keep no room have no use for the bounds of a :class:`Policy`."""
