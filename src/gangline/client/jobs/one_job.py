"""One job as it is shown: status, reason, instances; of a past run as it was last seen."""

from __future__ import annotations

from gangline.client.jobs.job_lookup import FoundJob, pods_of, warnings_about
from gangline.client.jobs.past_failure import why_failed
from gangline.clock import now
from gangline.cluster.runs.record import view_of_run
from gangline.workloads.job_view import JobView, view_job


async def read_job(found: FoundJob) -> JobView:
    """Return the view of a job that was found, with why it waits or failed."""
    pods = await pods_of(found.reader, found.job)
    warnings = await warnings_about(found.reader, found.namespace, pods)
    cause = await why_failed(found.reader, found.job, pods)
    view = view_job(found.job, pods, now(), warnings, cause)
    return view_of_run(view, found.past.record, now()) if found.past else view
