"""What an operator tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.kube.durations import DurationStatistics


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """A moment of the operator.

    Attributes:
        jobs: (kind, namespace, condition, how many are held now), sorted, finished ones included.
        jobs_created: jobs accepted since the start.
        jobs_successful: jobs that succeeded since the start.
        jobs_failed: jobs that failed since the start.
        training_jobs: (framework, namespace, ``created`` and so on, how many since the start), sorted, of the
            other kinds.
        launchers: (namespace, launcher Job) of every job that has one now.
        reconcile: from taking a job to having written everything.
        decide: the part of it that works out the plan; own processor time.
        queue_ready: jobs that wait for a worker.
        retries: reconciles that failed and were tried again.
        events_dropped: events that could not be sent.
        watch_restarts: (plural of the kind, watches after the first since the start), sorted.
        is_synced: whether all caches have had their first list.
        process_cpu_s: processor seconds of the whole process.
    """

    jobs: tuple[tuple[str, str, str, int], ...]
    jobs_created: int
    jobs_successful: int
    jobs_failed: int
    training_jobs: tuple[tuple[str, str, str, int], ...]
    launchers: tuple[tuple[str, str], ...]
    reconcile: DurationStatistics
    decide: DurationStatistics
    queue_ready: int
    retries: int
    events_dropped: int
    watch_restarts: tuple[tuple[str, int], ...]
    is_synced: bool
    process_cpu_s: float
