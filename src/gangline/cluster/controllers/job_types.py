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

    @property
    def unserved(self) -> str:
        """The first field that asks for something that this controller does not do, or empty."""
        if self.backoff_limit_per_index is not None:
            return "backoffLimitPerIndex"
        if self.success_policy is not None:
            return "successPolicy"
        rules = (self.pod_failure_policy or {}).get("rules") or []
        if any(rule.get("action") == "FailIndex" for rule in rules):
            return "podFailurePolicy with action FailIndex"
        return ""


class TrackedJobStatus(JobStatus, frozen=True, kw_only=True):
    """``status`` of a Job; ``completed_indexes`` like ``0-2,5`` for Indexed ones."""

    completed_indexes: str = ""


class TrackedJob(Wire, frozen=True, kw_only=True):
    """A Job as its controller reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TrackedJobSpec = TrackedJobSpec()
    status: TrackedJobStatus = TrackedJobStatus()
