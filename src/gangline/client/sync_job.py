"""A job, for scripts and notebooks."""

from __future__ import annotations

from gangline.client.async_job import AsyncJobHandle


class JobHandle:
    """A job of a cluster, there or of the past; what `AsyncJobHandle` does, waited for.

    Attributes:
        name, namespace, kind: of it.
        uid: its own, which tells it from others of its name.
    """

    def __init__(self, job: AsyncJobHandle) -> None:
        self._job = job
        self.kind, self.namespace, self.name, self.uid = job.ref

    def __repr__(self) -> str:
        return repr(self._job).replace("Async", "", 1)
