"""Simpler policies beside Gangline's own: what other schedulers do, reduced to what decides.

All start a job whole or not at all, and hand out the lowest ids of a node. Only least attained service takes
running jobs back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from gangline.placement import Policy
from gangline.placement.fit import fewest
from gangline.simulate.moves import Masks, Moves
from gangline.simulate.site import Site
from gangline.simulate.trace import TraceJob
from gangline.topology import mask_of, members

Counts = npt.NDArray[np.int64]

Share = Callable[[Counts, int], Mapping[int, int]]
"""(free pods by row, wanted) -> pods by row, in which there is room for all."""


class FitScheduler:
    """Takes what fits in the order of arrival, by the free GPUs of each node alone.

    Args:
        site: the simulated cluster.
        share: which nodes.
        is_strict: no job passes an earlier one that waits.
    """

    def __init__(self, site: Site, share: Share, *, is_strict: bool = False) -> None:
        self._free = [site.everything] * site.nodes
        self._counts = np.full(site.nodes, site.gpus_per_node, np.int64)
        self._share = share
        self._is_strict = is_strict
        self._waiting: dict[str, TraceJob] = {}
        self._running: dict[str, tuple[TraceJob, Masks]] = {}

    def submit(self, job: TraceJob) -> None:
        """Take a job that has arrived."""
        self._waiting[job.name] = job

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""
        for row, mask in self._running.pop(job.name)[1].items():
            self._free[row] |= mask
            self._counts[row] += mask.bit_count()

    def decide(self, now_s: float) -> Moves:
        """Return the jobs that start now, with their GPUs."""
        started: list[tuple[TraceJob, Masks]] = []
        refused: set[tuple[int, int]] = set()
        for job in list(self._waiting.values()):
            form = job.pods, job.gpus_per_pod
            masks = None if form in refused else self._start(job)
            if masks is not None:
                started.append((job, masks))
            elif self._is_strict:
                break
            else:
                refused.add(form)  # room only shrinks while it is decided
        return Moves(started)

    def _start(self, job: TraceJob) -> Masks | None:
        """Start a job if it fits."""
        room = self._counts // job.gpus_per_pod
        if int(room.sum()) < job.pods:
            return None
        masks = {}
        for row, count in self._share(room, job.pods).items():
            mask = masks[row] = mask_of(members(self._free[row])[: count * job.gpus_per_pod])
            self._free[row] &= ~mask
            self._counts[row] -= count * job.gpus_per_pod
        del self._waiting[job.name]
        self._running[job.name] = job, masks
        return masks


class EasyScheduler(FitScheduler):
    """EASY backfill (Lifka 1995): first in, first out; others may pass where they do not delay the first.

    When there will be room is told by what users say about how long their jobs run: the truth times a factor,
    log-uniform in a range. A job that runs longer than was said counts as one that ends at once.

    Args:
        site: the simulated cluster.
        share: which nodes.
        least, most: the range of the factor.
    """

    def __init__(self, site: Site, share: Share, least: float, most: float) -> None:
        super().__init__(site, share)
        self._range = np.log(least), np.log(most)
        self._ends: dict[str, float] = {}

    def estimate_s(self, job: TraceJob) -> float:
        """Return how long a job runs as its user says; the same for one name."""
        low, high = self._range
        drawn = int.from_bytes(sha256(job.name.encode()).digest()[:8]) / 2**64
        return job.work_s * float(np.exp(low + (high - low) * drawn))

    def decide(self, now_s: float) -> Moves:
        """Return the jobs that start now, with their GPUs."""
        started: list[tuple[TraceJob, Masks]] = []
        waiting = iter(list(self._waiting.values()))
        first = None
        for job in waiting:
            masks = self._start(job)
            if masks is None:
                first = job
                break
            self._begin(job, masks, now_s, started)
        if first is not None:
            self._backfill(first, waiting, now_s, started)
        return Moves(started)

    def _begin(
        self, job: TraceJob, masks: Masks, now_s: float, started: list[tuple[TraceJob, Masks]]
    ) -> None:
        self._ends[job.name] = now_s + self.estimate_s(job)
        started.append((job, masks))

    def _backfill(
        self,
        first: TraceJob,
        waiting: Iterator[TraceJob],
        now_s: float,
        started: list[tuple[TraceJob, Masks]],
    ) -> None:
        until_s, spare = self._shadow(first, now_s)
        everything = self._counts
        for job in waiting:
            is_short = now_s + self.estimate_s(job) <= until_s
            if not is_short:  # beside the first on what that leaves
                self._counts = np.minimum(everything, spare)
            masks = self._start(job)
            if not is_short:
                self._counts = everything
                if masks is not None:
                    self._take(spare, masks)
                    self._take(everything, masks)
            if masks is not None:
                self._begin(job, masks, now_s, started)

    @staticmethod
    def _take(counts: Counts, masks: Masks) -> None:
        for row, mask in masks.items():
            counts[row] -= mask.bit_count()

    def _shadow(self, first: TraceJob, now_s: float) -> tuple[float, Counts]:
        """Return when the first job will fit, and what it leaves then of the GPUs of each node."""
        counts = self._counts.copy()
        ends = [(max(self._ends[name], now_s), name) for name in self._running]
        heapq.heapify(ends)
        until_s = now_s
        while int((counts // first.gpus_per_pod).sum()) < first.pods:
            until_s, name = heapq.heappop(ends)
            for row, mask in self._running[name][1].items():
                counts[row] += mask.bit_count()
        for row, count in self._share(counts // first.gpus_per_pod, first.pods).items():
            counts[row] -= count * first.gpus_per_pod
        return until_s, counts


class LeastServiceScheduler(FitScheduler):
    """Least attained service in two queues (Tiresias, NSDI'19): what has had little goes first.

    Jobs are taken in the order of queue and arrival until the GPUs are used up; those that run and are not
    among them are suspended, whatever that costs.

    Args:
        site: the simulated cluster.
        share: which nodes.
        policy: with the boundary of the queues, and what a restart costs.
    """

    def __init__(self, site: Site, share: Share, policy: Policy) -> None:
        super().__init__(site, share)
        self._policy = policy
        self._gpus = site.gpus
        self._since_s: dict[str, float] = {}
        self._had_s: dict[str, float] = {}

    def finish(self, job: TraceJob) -> None:
        """Take back the room of a job that has ended."""
        super().finish(job)
        del self._since_s[job.name]

    def decide(self, now_s: float) -> Moves:
        """Return the jobs that are suspended and those that start now, with their GPUs."""
        if not self._waiting:
            return Moves([])
        jobs = [*(job for job, _ in self._running.values()), *self._waiting.values()]
        chosen: set[str] = set()
        left = self._gpus
        for job in sorted(jobs, key=lambda job: (self._is_long(job, now_s), job.arrival_s, job.name)):
            if job.gpus <= left:
                left -= job.gpus
                chosen.add(job.name)
        suspended = [job for name, (job, _) in self._running.items() if name not in chosen]
        suspended = [job for job in suspended if now_s - self._since_s[job.name] > self._policy.restart_s]
        for job in suspended:
            self._had_s[job.name] = self._had(job, now_s)
            self.finish(job)
        started = []
        for job in suspended:
            self._waiting[job.name] = job
        for name in [name for name in self._waiting if name in chosen]:
            job = self._waiting[name]
            masks = self._start(job)
            if masks is not None:
                self._since_s[name] = now_s
                started.append((job, masks))
        return Moves(started, suspended)

    def _had(self, job: TraceJob, now_s: float) -> float:
        ran_s = now_s - self._since_s[job.name] if job.name in self._since_s else 0.0
        return self._had_s.get(job.name, 0.0) + ran_s * job.gpus

    def _is_long(self, job: TraceJob, now_s: float) -> bool:
        return self._policy.suspension.is_long(self._had(job, now_s))


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


def emptiest(room: Counts, wanted: int) -> dict[int, int]:
    """Return pod after pod on the node with most room, as kube-scheduler's LeastAllocated scores.

    Example:
        >>> emptiest(np.array([0, 3, 1, 5]), 5)
        {3: 3, 1: 2}
    """
    heap = [(-int(room[row]), int(row)) for row in np.flatnonzero(room)]
    heapq.heapify(heap)
    shares: dict[int, int] = {}
    for _ in range(wanted):
        left, row = heap[0]
        shares[row] = shares.get(row, 0) + 1
        heapq.heapreplace(heap, (left + 1, row)) if left < -1 else heapq.heappop(heap)
    return shares


def by_domains(site: Site) -> Share:
    """Return how Kueue's topology-aware scheduling shares: the fewest nodes of the narrowest domain."""
    levels = [np.array(domains) for domains in site.domains()]

    def share(room: Counts, wanted: int) -> Mapping[int, int]:
        if int(room.max()) < wanted:
            for domains in levels:
                free = np.bincount(domains, weights=room)
                fitting = np.flatnonzero(free >= wanted)
                if len(fitting):
                    best = fitting[np.argmin(free[fitting])]
                    return fewest(np.where(domains == best, room, 0), wanted)
        return fewest(room, wanted)

    return share
