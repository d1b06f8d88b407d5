"""The policies of a replay: Gangline's own scheduling pass, and simpler ones beside it.

==============  =========================================================================================
``gangline``    the scheduling pass as it is: racks and blocks, nodes and GPUs by their wires, best effort
                with room kept for what is overdue
``rack-only``   the same pass with racks and blocks, on nodes that publish no links: the stock device plugin
                hands out the lowest ids
``best-fit``    the fewest nodes, the fullest that takes the job or its rest, lowest ids; what fits may pass
``first-fit``   pod after pod on the first node by name, lowest ids; strict first in, first out
==============  =========================================================================================

All start a job whole or not at all, and none takes running jobs back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from gangline.placement import Gang, Group, NodeTable, PodView, Policy, SchedulingCycle
from gangline.placement.allocations import Allocations
from gangline.placement.fit import fewest
from gangline.simulate.pods import gang_of, moment
from gangline.simulate.site import Site
from gangline.simulate.trace import TraceJob
from gangline.topology import mask_of, members
from gangline.workloads.requests import GPU

Masks = dict[int, int]
"""GPUs of a job: mask by row of the node."""

Counts = npt.NDArray[np.int64]


class ReplayPolicy(Protocol):
    """Who decides in a replay. It is told of arrivals and ends, and asked after them."""

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""

    def decide(self, now_s: float) -> list[tuple[TraceJob, Masks]]:
        """Return the jobs that start now, with their GPUs."""


class PassScheduler:
    """Asks :class:`gangline.placement.cycle.SchedulingCycle`, as the scheduler of a cluster does.

    Args:
        site: the simulated cluster.
        with_links: nodes publish their links; without, the stock device plugin takes the lowest ids.
        policy: how long what waits is waited for; levels are the site's, and nobody gives way.
    """

    def __init__(self, site: Site, policy: Policy, *, with_links: bool) -> None:
        levels = tuple(level.label for level in site.levels)
        self._policy = replace(policy, levels=levels, may_preempt=False)
        self._table = NodeTable.of(site.node_views(with_links=with_links), (), levels)
        self._groups: dict[str, Group] = {}
        self._allocations = Allocations((), self._groups)
        self._plugin = [site.everything] * site.nodes
        self._with_links = with_links
        self._waiting: dict[str, tuple[TraceJob, Gang]] = {}
        self._running: dict[str, tuple[list[PodView], Masks]] = {}

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""
        gang = gang_of(job)
        self._waiting[job.name] = job, gang
        if len(gang.pods) > 1:
            self._groups[gang.key] = gang.group

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""
        pods, masks = self._running.pop(job.name)
        for pod in pods:
            self._allocations.remove(pod.uid)
        self._groups.pop(job.name, None)
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

    def decide(self, now_s: float) -> list[tuple[TraceJob, Masks]]:
        """Return the jobs that start now, with their GPUs."""
        if not self._waiting:
            return []
        gangs = [gang for _, gang in self._waiting.values()]
        decisions = SchedulingCycle(self._table, self._allocations, self._policy, now=moment(now_s)).run(
            gangs
        )
        placed: dict[str, list[PodView]] = {}
        masks: dict[str, Masks] = {}
        for binding in decisions.bindings:
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
            self._running[name] = pods, masks[name]
            started.append((self._waiting.pop(name)[0], masks[name]))
        return started

    def _handed_out(self, row: int, pod: PodView) -> int:
        """Return the GPUs that the stock device plugin hands to a pod: the lowest free ones."""
        mask = mask_of(members(self._plugin[row])[: pod.request[GPU]])
        self._plugin[row] &= ~mask
        return mask


class FitScheduler:
    """Looks at free GPUs by node alone, and hands out the lowest ids.

    Args:
        site: the simulated cluster.
        share: (free pods by row, wanted) -> pods by row, in which there is room for all.
        is_strict: no job passes an earlier one that waits.
    """

    def __init__(
        self, site: Site, share: Callable[[Counts, int], Mapping[int, int]], *, is_strict: bool
    ) -> None:
        self._free = [site.everything] * site.nodes
        self._counts = np.full(site.nodes, site.gpus_per_node, np.int64)
        self._share = share
        self._is_strict = is_strict
        self._waiting: dict[str, TraceJob] = {}
        self._running: dict[str, Masks] = {}

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""
        self._waiting[job.name] = job

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""
        for row, mask in self._running.pop(job.name).items():
            self._free[row] |= mask
            self._counts[row] += mask.bit_count()

    def decide(self, now_s: float) -> list[tuple[TraceJob, Masks]]:
        """Return the jobs that start now, with their GPUs."""
        started: list[tuple[TraceJob, Masks]] = []
        refused: set[tuple[int, int]] = set()
        for job in self._waiting.values():
            form = job.pods, job.gpus_per_pod
            masks = None if form in refused else self._place(*form)
            if masks is not None:
                started.append((job, masks))
                self._running[job.name] = masks
            elif self._is_strict:
                break
            else:
                refused.add(form)  # room only shrinks while it is decided
        for job, _ in started:
            del self._waiting[job.name]
        return started

    def _place(self, pods: int, gpus: int) -> Masks | None:
        room = self._counts // gpus
        if int(room.sum()) < pods:
            return None
        masks = {}
        for row, count in self._share(room, pods).items():
            mask = masks[row] = mask_of(members(self._free[row])[: count * gpus])
            self._free[row] &= ~mask
            self._counts[row] -= count * gpus
        return masks


def first_fit(room: Counts, wanted: int) -> dict[int, int]:
    """Return pod after pod on the first node with room.

    Example:
        >>> first_fit(np.array([0, 3, 1, 5]), 5)
        {1: 3, 2: 1, 3: 1}
    """
    shares = {}
    for row in np.flatnonzero(room):
        shares[int(row)] = min(int(room[row]), wanted)
        wanted -= shares[int(row)]
        if not wanted:
            break
    return shares


POLICIES: dict[str, Callable[[Site, Policy], ReplayPolicy]] = {
    "gangline": lambda site, policy: PassScheduler(site, policy, with_links=True),
    "rack-only": lambda site, policy: PassScheduler(site, policy, with_links=False),
    "best-fit": lambda site, _: FitScheduler(site, fewest, is_strict=False),
    "first-fit": lambda site, _: FitScheduler(site, first_fit, is_strict=True),
}
"""Fresh schedulers by name; those that keep no room have no use for the bounds of a :class:`Policy`."""
