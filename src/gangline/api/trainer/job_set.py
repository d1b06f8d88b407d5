"""JobSet of ``jobset.x-k8s.io/v1alpha2``, as far as the operator reads its own. Source: v0.11.1."""

from __future__ import annotations

from typing import Any, Final

from gangline.api.core import Condition, ObjectMeta, Wire, find_condition

COMPLETED: Final = "Completed"
FAILED: Final = "Failed"


class JobSetSpec(Wire, frozen=True, kw_only=True):
    """``spec`` of a JobSet: whether it holds no pods."""

    suspend: bool = False


class JobSetStatus(Wire, frozen=True, kw_only=True):
    """``status`` of a JobSet."""

    conditions: list[Condition] = []
    restarts: int = 0
    replicated_jobs_status: list[dict[str, Any]] = []


class JobSet(Wire, frozen=True, kw_only=True):
    """A JobSet as a cache keeps it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()

    @property
    def end(self) -> Condition | None:
        """How it ended; None while it has not."""
        found = (find_condition(self.status.conditions, type_) for type_ in (COMPLETED, FAILED))
        return next((one for one in found if one is not None and one.status == "True"), None)
