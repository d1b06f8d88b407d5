"""From the outcome of a job to what its user is told: which rank failed, in which pod, and its last lines."""

from __future__ import annotations

from gangline.errors import EXIT_RESUME, JobFailedError
from gangline.workloads.job_outcome import JobOutcome, cause_of, launch_cause
from gangline.workloads.job_start import job_ref
from gangline.workloads.kinds import kind_of


def failure_of(outcome: JobOutcome) -> JobFailedError | None:
    """Return the error for a job that failed or was deleted, ``None`` for one that succeeded."""
    title, code = job_ref(outcome.job), outcome.exit_code
    if outcome.status == "DELETED":
        return JobFailedError(f"{title} was deleted before it ended", exit_code=code or 1)
    cause = cause_of(outcome)
    if cause is None:
        return None
    hint = (
        "its ranks saved before they ended: the same command goes on from there"
        if code == EXIT_RESUME
        else ""
    )
    return JobFailedError(f"{title} failed: {cause}", exit_code=code or 1, hint=hint)


def last_lines(outcome: JobOutcome, *, is_alone: bool = True) -> list[str]:
    """Return the heading and the last lines of the rank that failed, else of the launcher.

    Lines that nothing came after are still the last ones that the reader has seen, and are not repeated.

    Args:
        outcome: of the job that failed.
        is_alone: whether no other job's log came between.
    """
    failure, cause = outcome.failure, launch_cause(outcome)
    if failure is None or cause is None or not failure.lines or (failure.is_last and is_alone):
        return []
    primary = kind_of(outcome.job).primary
    whose, pod = f"the {primary}" if primary else "the log", outcome.primary_pod
    if cause.rank is not None:
        whose, pod = f"rank {cause.rank}", cause.pod
    place = f" in pod {pod}" if pod else ""
    count = len(failure.lines)
    head = f"last {count} lines of {whose}{place}:" if count > 1 else f"last line of {whose}{place}:"
    return [head, *(f"  | {line}" for line in failure.lines)]
