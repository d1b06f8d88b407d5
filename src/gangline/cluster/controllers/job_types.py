"""A batch/v1 Job with the fields that only its controller reads."""

from __future__ import annotations

from typing import Any

from gangline.api.core import JobSpec, JobStatus, ObjectMeta, Wire

JOB_CONTROLLER = "kubernetes.io/job-controller"
DEFAULT_BACKOFF_LIMIT = 6


class TrackedJobSpec(JobSpec, frozen=True, kw_only=True):
    """``spec`` of a Job; policies stay raw."""

    pod_failure_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    managed_by: str = ""

    @property
    def is_indexed(self) -> bool:
        """Whether each completion has a number of its own."""
        return self.completion_mode == "Indexed"

    @property
    def retries(self) -> int:
        """``backoffLimit``, or its default."""
        return DEFAULT_BACKOFF_LIMIT if self.backoff_limit is None else self.backoff_limit

    @property
    def replaces_only_failed(self) -> bool:
        """Whether a pod is replaced only when it has fully ended, not already when it terminates."""
        if self.pod_replacement_policy:
            return self.pod_replacement_policy == "Failed"
        return self.pod_failure_policy is not None


class TrackedJobStatus(JobStatus, frozen=True, kw_only=True):
    """``status`` of a Job; the indexes of an Indexed one like ``0-2,5``.

    ``failed_indexes`` is None without a back-off limit for each index.
    """

    completed_indexes: str = ""
    failed_indexes: str | None = None


class TrackedJob(Wire, frozen=True, kw_only=True):
    """A Job as its controller reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TrackedJobSpec = TrackedJobSpec()
    status: TrackedJobStatus = TrackedJobStatus()
