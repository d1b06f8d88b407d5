"""The phases of an MPIJob that is not over yet: ``TRANSITIONS``, a table that decides and is drawn.

``enter_phase`` works out the evidence once, takes the first row of the table that holds and enters its phase.
The order of the rows is the priority of the rules: a launcher that has completed wins over a worker that was
lost meanwhile, a restart of the gang over the end that it forgives. The last row always holds, so that one
is taken in every reconcile, and every phase can follow on each: what was decided before is no input.

Out of scope: what is created and deleted in a phase (``jobs/mpijob.py``), and how a condition is written
(``jobs/status.py``). ``docs/update_diagrams.py`` draws ``docs/concepts/job-lifecycle.md`` from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from gangline.api.core import is_true
from gangline.api.mpijob import LAUNCHER, WORKER, MPIJob, ReplicaStatus
from gangline.jobs.conditions import RUNNING
from gangline.jobs.failure import (
    JOB_FAILED,
    FailedCondition,
    judge_evicted_workers,
    judge_launcher,
    judge_lost_workers,
    judge_workers,
)
from gangline.jobs.hostfile import is_elastic
from gangline.jobs.launcher_replacement import backoff_limit_of, count_failures, describe_replacements
from gangline.jobs.observed_job import ObservedJob
from gangline.jobs.status import StatusDraft
from gangline.workloads.suspension import why_suspended


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the rows of the table ask about.

    Attributes:
        observed_job: the job and its objects.
        failed_workers: why the job cannot go on with the workers that it has; None while it can.
        replacement_wait_s: seconds until a refused launcher is made anew; None where none is.
        launcher_active: launcher pods that run, as the status counts them.
    """

    observed_job: ObservedJob
    failed_workers: FailedCondition | None
    replacement_wait_s: float | None
    launcher_active: int

    @property
    def job(self) -> MPIJob:
        """The MPIJob."""
        return self.observed_job.job

    def launcher_is(self, condition: str) -> bool:
        """Whether the launcher Job has a condition of this type."""
        launcher = self.observed_job.launcher
        return launcher is not None and is_true(launcher.status.conditions, condition)


class Transition(NamedTuple):
    """One row: the phase, when it is entered, and what follows.

    Attributes:
        phase: the condition that is set, or a word for a phase without one of its own.
        when: the rule in words, for the diagram.
        holds: the rule.
        enter: writes the phase into the status.
        follows: what the operator does next, in words, for the table of the page.
    """

    phase: str
    when: str
    holds: Callable[[Evidence], bool]
    enter: Callable[[Evidence, StatusDraft], None]
    follows: str


FINAL: Final = frozenset({"Failed", "Succeeded"})
"""Phases that no other follows."""


def enter_phase(observed_job: ObservedJob, draft: StatusDraft, replacement_wait_s: float | None) -> str:
    """Bring the status of a job that is not over up to date, and return its phase.

    Args:
        observed_job: the job and its objects.
        draft: takes the changes; the job may be finished afterwards.
        replacement_wait_s: as of ``launcher_replacement.replacement_wait_s``.
    """
    count_launcher(observed_job, draft)
    evidence = Evidence(
        observed_job,
        _failed_workers(observed_job),
        replacement_wait_s,
        draft.replicas.get(LAUNCHER, ReplicaStatus()).active,
    )
    row = next(row for row in TRANSITIONS if row.holds(evidence))
    row.enter(evidence, draft)
    return row.phase


def count_launcher(observed_job: ObservedJob, draft: StatusDraft) -> None:
    """Count the launcher's pods by phase; what was counted stays while there is no launcher."""
    launcher = observed_job.launcher
    if launcher is None:
        return
    is_complete = is_true(launcher.status.conditions, "Complete")
    is_over = is_complete or is_true(launcher.status.conditions, "Failed")
    running = sum(pod.status.phase == "Running" for pod in observed_job.launcher_pods)
    draft.replicas[LAUNCHER] = ReplicaStatus(
        active=0 if is_over else running,
        succeeded=int(is_complete),
        failed=count_failures(launcher, observed_job.launcher_pods),
    )


def lost_workers(observed_job: ObservedJob) -> FailedCondition | None:
    """Return which workers of a running job are gone or going, though they are wanted."""
    job = observed_job.job
    if not is_true(job.status.conditions, RUNNING):
        return None
    counted = job.status.replica_statuses.get(WORKER, ReplicaStatus()).active
    return judge_lost_workers(observed_job.missing_workers(counted))


def _failed_workers(observed_job: ObservedJob) -> FailedCondition | None:
    # A launcher that has ended well needs its workers no more: its Job is about to say so.
    ended = any(pod.status.phase == "Succeeded" for pod in observed_job.launcher_pods)
    if ended or is_elastic(observed_job.job):
        return None
    failed = judge_workers(observed_job.wanted_workers)
    # Workers that are replaced one by one find a launcher that does not know them.
    if failed is None and observed_job.job.restarts_gang:
        return lost_workers(observed_job)
    if failed is None and observed_job.job.forgives_disruption and observed_job.launcher_stays:
        return _evicted_workers(observed_job)
    return failed


def _evicted_workers(observed_job: ObservedJob) -> FailedCondition | None:
    """Return which workers of a running job the cluster takes away, by what it wrote on them.

    That a worker is not there proves nothing by itself: the pods may be known later than the job.
    """
    if not is_true(observed_job.job.status.conditions, RUNNING):
        return None
    is_gang = observed_job.dialect is not None  # whose scheduler takes all of it away, one after another
    return judge_evicted_workers(observed_job.wanted_workers, by_scheduler=not is_gang)


# The rules of the rows, in their order.


def _can_restart(evidence: Evidence) -> bool:
    job, failed = evidence.job, evidence.failed_workers
    if failed is None or job.is_suspended:
        return False
    if not job.restarts_gang and not (job.forgives_disruption and failed.is_disruption):
        return False
    return job.status.restarts < backoff_limit_of(job)


def _launcher_gave_up(evidence: Evidence) -> bool:
    return evidence.launcher_is("Failed") and evidence.replacement_wait_s is None


def _replacement_is_due(evidence: Evidence) -> bool:
    return evidence.replacement_wait_s is not None and evidence.replacement_wait_s <= 0


def _all_run(evidence: Evidence) -> bool:
    workers = sum(pod.status.phase == "Running" for pod in evidence.observed_job.wanted_workers)
    return evidence.launcher_active > 0 and workers == evidence.job.worker_count


# What entering a phase writes.


def _fail_refused(evidence: Evidence, draft: StatusDraft) -> None:
    draft.failed(FailedCondition(JOB_FAILED, "; ".join(evidence.observed_job.observed.rejected)))


def _succeed(evidence: Evidence, draft: StatusDraft) -> None:
    assert evidence.observed_job.launcher
    draft.succeeded(evidence.observed_job.launcher.status.completion_time)


def _restart(evidence: Evidence, draft: StatusDraft) -> None:
    assert evidence.failed_workers
    draft.restarting(evidence.failed_workers, backoff_limit_of(evidence.job))


def _fail_launcher(evidence: Evidence, draft: StatusDraft) -> None:
    observed_job = evidence.observed_job
    assert observed_job.launcher
    failed = judge_launcher(evidence.job.metadata.key, observed_job.launcher, observed_job.launcher_pods)
    draft.failed(failed._replace(message=failed.message + describe_replacements(evidence.job)))


def _suspend(evidence: Evidence, draft: StatusDraft) -> None:
    draft.suspended(why_suspended(evidence.job.metadata.annotations))


def _fail_workers(evidence: Evidence, draft: StatusDraft) -> None:
    assert evidence.failed_workers
    _go_on(evidence, draft)
    restarts = evidence.job.status.restarts
    times = f" (restarts of the gang: {restarts})" if restarts else ""
    reason, message = evidence.failed_workers
    draft.failed(FailedCondition(reason, message + times))


def _replace_launcher(evidence: Evidence, draft: StatusDraft) -> None:
    _go_on(evidence, draft)
    draft.launcher_replacements += 1


def _run(evidence: Evidence, draft: StatusDraft) -> None:
    _go_on(evidence, draft)
    draft.running()


def _go_on(evidence: Evidence, draft: StatusDraft) -> None:
    draft.resumed()
    draft.count_workers(evidence.observed_job.wanted_workers)


_CLEAN_UP = "workers go as `cleanPodPolicy` says, a launcher that still runs is ended"

TRANSITIONS: Final = (
    Transition(
        "Failed",
        "the API refuses an object of it",
        lambda evidence: bool(evidence.observed_job.observed.rejected),
        _fail_refused,
        _CLEAN_UP,
    ),
    Transition(
        "Succeeded",
        "the launcher is complete",
        lambda evidence: evidence.launcher_is("Complete"),
        _succeed,
        _CLEAN_UP,
    ),
    Transition(
        "Restarting",
        "a worker was evicted, or failed or was lost and `restart-gang` is asked for; restarts are left",
        _can_restart,
        _restart,
        "launcher and workers are deleted, then made anew",
    ),
    Transition(
        "Failed",
        "the launcher failed, and its node did not refuse it",
        _launcher_gave_up,
        _fail_launcher,
        _CLEAN_UP,
    ),
    Transition(
        "Suspended",
        "`suspend` is set",
        lambda evidence: evidence.job.is_suspended,
        _suspend,
        "the launcher is held, workers are deleted",
    ),
    Transition(
        "Failed",
        "a worker failed",
        lambda evidence: evidence.failed_workers is not None,
        _fail_workers,
        _CLEAN_UP,
    ),
    Transition(
        "Replacing",
        "the launcher's node refused it, and the pause is over",
        _replacement_is_due,
        _replace_launcher,
        "the launcher's Job is deleted, then made anew",
    ),
    Transition(
        "Running",
        "launcher and all workers run",
        _all_run,
        _run,
        "what is missing is made again",
    ),
    Transition(
        "Waiting",
        "otherwise",
        lambda _evidence: True,
        _go_on,
        "what is missing is made",
    ),
)
"""The first row that holds decides."""
