"""A job, for event loops."""

from __future__ import annotations

from gangline.client.target import ClusterTarget
from gangline.workloads.job_start import JobRef


class AsyncJobHandle:
    """A job of a cluster, there or of the past.

    Attributes:
        name, namespace, kind: of it.
        uid: its own, which tells it from others of its name.
    """

    def __init__(self, target: ClusterTarget, ref: JobRef) -> None:
        self._target = target
        self.ref = ref
        self.kind, self.namespace, self.name, self.uid = ref

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ref}>"
