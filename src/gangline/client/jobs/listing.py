"""Every job of a namespace, or of all, each with its status and why it waits or failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gangline.api.resources import PODS
from gangline.client.jobs.job_lookup import list_jobs, warnings_about
from gangline.client.jobs.past_failure import why_all_failed
from gangline.clock import now
from gangline.workloads.job_state import pods_by_job
from gangline.workloads.job_view import JobView, view_job

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient


async def read_jobs(
    client: ObjectClient, namespace: str | None, *, only: str = "", with_reasons: bool = True
) -> tuple[list[dict[str, Any]], list[JobView]]:
    """Return the jobs that no other object controls, oldest first: in wire form, and as they are shown.

    Args:
        client: of the cluster.
        namespace: None for all.
        only: a kind, as manifests spell it; empty for all.
        with_reasons: read events and the ends of logs, too, for why one waits or failed.
    """
    jobs, pods = await asyncio.gather(list_jobs(client, namespace), client.list(PODS, namespace))
    jobs = [job for job in jobs if only in ("", job["kind"])]
    members = pods_by_job(jobs, pods.items)
    warnings = await warnings_about(client, namespace, pods.items) if with_reasons else []
    causes = await why_all_failed(client, jobs, members) if with_reasons else [None for _ in jobs]
    views = [
        view_job(job, own, now(), warnings, cause)
        for job, own, cause in zip(jobs, members, causes, strict=True)
    ]
    return jobs, views
