"""Jobs and pods that the tests of the Job controller's decisions start from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.core import JobStatus, Pod
from gangline.clock import format_time
from gangline.cluster.controllers.job_plan import JobPlan
from gangline.cluster.controllers.job_types import TrackedJob

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_job(*, status: Any = None, restart: str = "Never", deleted: bool = False, **spec: Any) -> TrackedJob:
    metadata = {"name": "pi", "namespace": "team", "uid": "job-uid"}
    if deleted:
        metadata["deletionTimestamp"] = format_time(NOW)
    spec = {"parallelism": 1, "completions": 1, "template": {"spec": {"restartPolicy": restart}}, **spec}
    status = {"startTime": format_time(NOW), **(status or {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, TrackedJob)


def make_pod(
    uid: str,
    phase: str = "Running",
    *,
    deleted: bool = False,
    ended_s_ago: float = 0,
    exit_code: int | None = None,
    node: str = "a",
    index: int | None = None,
    failures: int | None = None,
    **status: Any,
) -> Pod:
    metadata: dict[str, Any] = {"name": f"pi-{uid}", "namespace": "team", "uid": uid}
    metadata["creationTimestamp"] = format_time(NOW)
    if index is not None:
        metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
    if failures is not None:
        metadata["annotations"]["batch.kubernetes.io/job-index-failure-count"] = str(failures)
    if deleted:
        metadata["deletionTimestamp"] = format_time(NOW)
    if phase in ("Failed", "Succeeded"):
        end = format_time(NOW - timedelta(seconds=ended_s_ago))
        code = (1 if phase == "Failed" else 0) if exit_code is None else exit_code
        state = {"terminated": {"exitCode": code, "finishedAt": end}}
        status = {"containerStatuses": [{"name": "main", "state": state}], **status}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}, Pod
    )


def settle(job: TrackedJob, plan: JobPlan) -> TrackedJob:
    """Return the job with the plan's status written."""
    return msgspec.structs.replace(job, status=plan.status) if plan.status else job


def conditions(status: JobStatus | None) -> dict[str, str]:
    assert status is not None
    return {c.type: c.reason for c in status.conditions if c.status == "True"}
