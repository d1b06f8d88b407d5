"""Replay a trace: events in the order of a virtual clock, decisions by a policy, every start recorded.

A job starts when the policy says so, and runs ``work_s / speed``, where ``speed`` is the predicted training
speed of its placement beside that of the best one; with fixed durations it runs ``work_s`` whatever its GPUs.
A limit is what the scheduler is told, true or not: it ends nobody. A job that is suspended keeps what it has
done, and spends ``restart_s`` on its GPUs before it goes on. At one moment ends come before arrivals, and the
policy is asked once after both; while jobs wait it is asked at least once a minute, as a cluster's is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from gangline.errors import UserError
from gangline.placement import Policy
from gangline.simulate.moves import Masks
from gangline.simulate.policies import ReplayPolicy
from gangline.simulate.site import Site
from gangline.simulate.speeds import MODELS, Speeds
from gangline.simulate.trace import Trace, TraceJob

SAMPLE_S = 300.0
"""Between two samples of the course of a day."""

LOOK_AGAIN_S = 60.0
"""While jobs wait the policy is asked at least so often: waiting itself changes who is first."""

_END, _ARRIVAL = 0, 1


@dataclass(frozen=True, slots=True)
class JobRun:
    """How one job fared. Times are seconds of the trace.

    Attributes:
        job: as it is in the trace.
        spans: from when until when it held GPUs; more than one where it was suspended.
        speed: relative to the best placement, above 0; of one that was suspended its work beside the time on
            its GPUs, restarts left out.
        nodes: on how many nodes at last.
    """

    job: TraceJob
    spans: tuple[tuple[float, float], ...]
    speed: float
    nodes: int

    @property
    def start_s(self) -> float:
        """When it ran first."""
        return self.spans[0][0]

    @property
    def end_s(self) -> float:
        """When it was done."""
        return self.spans[-1][1]

    @property
    def suspensions(self) -> int:
        """How often it was suspended."""
        return len(self.spans) - 1

    @property
    def wait_s(self) -> float:
        """From arrival to start."""
        return self.start_s - self.job.arrival_s

    @property
    def completion_s(self) -> float:
        """From arrival to end."""
        return self.end_s - self.job.arrival_s


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster at one moment.

    Attributes:
        at_s: since the measured span began.
        busy: GPUs that jobs hold.
        useful: the same, each counted with the speed of its job.
        waiting: GPUs that waiting jobs ask for.
    """

    at_s: float
    busy: int
    useful: float
    waiting: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay.

    Attributes:
        runs: of all jobs, in the order of their first starts.
        busy_gpu_s, useful_gpu_s, free_gpu_s, stranded_gpu_s: over the measured span. Stranded are free GPUs
            on nodes that are not wholly free.
        samples: the course of the measured span.
    """

    runs: tuple[JobRun, ...]
    busy_gpu_s: float
    useful_gpu_s: float
    free_gpu_s: float
    stranded_gpu_s: float
    samples: tuple[ClusterSample, ...]


def check_trace(trace: Trace, site: Site) -> None:
    """Check that every job of a trace could run on an empty cluster.

    Raises:
        UserError: one could not, or trains an unknown model.
    """
    for job in trace.jobs:
        if job.model not in MODELS:
            raise UserError(f"{job.name} trains `{job.model}`", hint=f"known models: {', '.join(MODELS)}")
        if not 1 <= job.gpus_per_pod <= job.gpus or job.gpus % job.gpus_per_pod:
            raise UserError(
                f"{job.name} asks for {job.gpus} GPUs in pods of {job.gpus_per_pod}: that does not divide"
            )
        if job.pods > site.gpus_per_node // job.gpus_per_pod * site.nodes:
            raise UserError(
                f"{job.name} asks for {job.pods} pods of {job.gpus_per_pod} GPUs at once; the simulated "
                f"cluster has {site.nodes} nodes with {site.gpus_per_node} GPUs",
                hint="take more nodes",
            )


class _Course:
    """One job that has started: what is left of it, and how fast it goes.

    Attributes:
        end_s: when it is done, if it is not suspended before.
    """

    def __init__(self, job: TraceJob) -> None:
        self.job = job
        self.end_s = 0.0
        self._spans: list[tuple[float, float]] = []
        self._from_s = self._since_s = 0.0
        self._left_s = job.work_s
        self._rate = self._speed = 1.0
        self._nodes = 0
        self._went_s = self._useful_s = 0.0

    def go(self, now_s: float, masks: Masks, speed: float, *, rate: float, restart_s: float) -> None:
        """Start, or go on after a suspension, at ``rate`` of the best placement's progress."""
        self._from_s, self._since_s = now_s, now_s + (restart_s if self._spans else 0.0)
        self._rate, self._speed, self._nodes = rate, speed, len(masks)
        self.end_s = self._since_s + self._left_s / rate

    def stop(self, now_s: float) -> None:
        """Suspend it: what it has done is saved."""
        self._count(now_s)

    def done(self) -> JobRun:
        """Return how it fared."""
        self._count(self.end_s)
        speed = self._useful_s / self._went_s if len(self._spans) > 1 and self._went_s else self._speed
        return JobRun(self.job, tuple(self._spans), speed, self._nodes)

    def _count(self, now_s: float) -> None:
        self._spans.append((self._from_s, now_s))
        went_s = max(now_s - self._since_s, 0.0)
        self._went_s += went_s
        self._useful_s += went_s * self._speed
        self._left_s = max(self._left_s - went_s * self._rate, 0.0)


def replay(
    trace: Trace,
    site: Site,
    scheduler: ReplayPolicy,
    speeds: Speeds,
    *,
    has_fixed_durations: bool = False,
    restart_s: float = Policy().restart_s,
    watch: Callable[[int], None] = lambda ended: None,
) -> Replay:
    """Run a trace to the end of its last job.

    Args:
        trace: checked with :func:`check_trace`.
        site: the simulated cluster.
        scheduler: fresh, see :data:`gangline.simulate.policies.POLICIES`.
        speeds: of the same site.
        has_fixed_durations: the speed of a placement does not change how long a job runs.
        restart_s: what a suspension costs: for so long a job that goes on holds its GPUs for nothing.
        watch: told how many jobs have ended, now and then.

    Raises:
        ValueError: the policy gave out a GPU twice, or too few, or left a job waiting on an empty cluster.

    Cost: a pass for each moment at which something happens.
    """
    events: list[tuple[float, int, str, TraceJob]] = [
        (job.arrival_s, _ARRIVAL, job.name, job) for job in trace.jobs
    ]
    heapq.heapify(events)
    state = _State(trace, site)
    courses: dict[str, _Course] = {}
    runs: list[JobRun] = []
    asked_s = 0.0
    while events:
        now_s = min(events[0][0], asked_s + LOOK_AGAIN_S) if state.waiting else events[0][0]
        state.move(now_s)
        while events and events[0][0] == now_s:
            _, kind, name, job = heapq.heappop(events)
            if kind == _ARRIVAL:
                state.waiting += job.gpus
                scheduler.submit(job)
            elif name in state.held and courses[name].end_s == now_s:  # not an end that a suspension put off
                runs.append(courses.pop(name).done())
                watch(len(runs))
                state.end(job)
                scheduler.finish(job)
        asked_s = now_s
        moves = scheduler.decide(now_s)
        for job in moves.suspended:
            courses[job.name].stop(now_s)
            state.end(job)
            state.waiting += job.gpus
        for job, masks in moves.started:
            state.check(job, masks)
            speed = speeds.relative(job, masks)
            rate = 1.0 if has_fixed_durations else speed
            course = courses.setdefault(job.name, _Course(job))
            course.go(now_s, masks, speed, rate=rate, restart_s=restart_s)
            state.start(job, masks, speed)
            heapq.heappush(events, (course.end_s, _END, job.name, job))
    if len(runs) != len(trace.jobs):
        raise ValueError(f"{len(trace.jobs) - len(runs)} jobs never started")
    return state.result(tuple(sorted(runs, key=lambda run: (run.start_s, run.job.name))))


class _State:
    """The simulated GPUs, and integrals over the measured span."""

    def __init__(self, trace: Trace, site: Site) -> None:
        self._from_s, self._until_s = trace.from_s, trace.until_s
        self._gpus = site.gpus
        self._everything = site.everything
        self._free = [site.everything] * site.nodes
        self.held: dict[str, tuple[Masks, float]] = {}
        self._now_s = 0.0
        self._whole = site.nodes
        self._busy = 0
        self._useful = 0.0
        self.waiting = 0
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._samples: list[ClusterSample] = []

    def move(self, now_s: float) -> None:
        """Let the clock go on."""
        while len(self._samples) * SAMPLE_S < min(now_s, self._until_s) - self._from_s:
            at_s = len(self._samples) * SAMPLE_S
            self._samples.append(ClusterSample(at_s, self._busy, self._useful, self.waiting))
        passed_s = min(now_s, self._until_s) - max(self._now_s, self._from_s)
        if passed_s > 0:
            free = self._gpus - self._busy
            stranded = free - self._whole * self._everything.bit_count()
            for position, value in enumerate((self._busy, self._useful, free, stranded)):
                self._sums[position] += passed_s * value
        self._now_s = now_s

    def check(self, job: TraceJob, masks: Masks) -> None:
        """Raise unless the GPUs are as many as the job asks for, and free."""
        if sum(mask.bit_count() for mask in masks.values()) != job.gpus:
            raise ValueError(f"{job.name} asks for {job.gpus} GPUs and was given {masks}")
        for row, mask in masks.items():
            if mask & ~self._free[row]:
                raise ValueError(f"{job.name} was given GPUs {mask:#b} of node {row}, which are not free")

    def start(self, job: TraceJob, masks: Masks, speed: float) -> None:
        """Give free GPUs to a job."""
        for row, mask in masks.items():
            self._whole -= self._free[row] == self._everything
            self._free[row] ^= mask
        self.held[job.name] = masks, speed
        self._busy += job.gpus
        self._useful += job.gpus * speed
        self.waiting -= job.gpus

    def end(self, job: TraceJob) -> None:
        """Take the GPUs of a job back."""
        masks, speed = self.held.pop(job.name)
        for row, mask in masks.items():
            self._free[row] |= mask
            self._whole += self._free[row] == self._everything
        self._busy -= job.gpus
        self._useful = self._useful - job.gpus * speed if self._busy else 0.0

    def result(self, runs: tuple[JobRun, ...]) -> Replay:
        """Return the outcome."""
        self.move(self._until_s)
        busy, useful, free, stranded = self._sums
        return Replay(runs, busy, useful, free, stranded, tuple(self._samples))
