"""A job, for scripts and notebooks."""

from __future__ import annotations

from typing import Self

from gangline.client.async_job import AsyncJobHandle
from gangline.client.job_picture import job_picture
from gangline.client.waited import iterated, waited
from gangline.workloads.job_view import JobView


class JobHandle:
    """A job of a cluster, there or of the past; what `AsyncJobHandle` does, waited for.

    Ctrl-C, or the stop button of a notebook, ends the wait and leaves the job alone. As a context (`with`) it
    is cancelled at the end of the block where it still goes on.

    Attributes:
        name, namespace, kind: of it.
        uid: its own, which tells it from others of its name.
    """

    def __init__(self, job: AsyncJobHandle) -> None:
        self._asynchronous = job
        self.kind, self.namespace, self.name, self.uid = job.ref

    def __repr__(self) -> str:
        return repr(self._asynchronous).replace("Async", "", 1)

    def _repr_html_(self) -> str:
        return job_picture(self.view or self.refresh())

    @property
    def view(self) -> JobView | None:
        """How it was last seen; None before `refresh` or `wait`, unless a list made it."""
        return self._asynchronous.view

    refresh = waited(AsyncJobHandle.refresh)
    wait = waited(AsyncJobHandle.wait)
    results = waited(AsyncJobHandle.results)
    logs = iterated(AsyncJobHandle.logs)
    metrics = waited(AsyncJobHandle.metrics)
    explain = waited(AsyncJobHandle.explain)
    cancel = waited(AsyncJobHandle.cancel)
    suspend = waited(AsyncJobHandle.suspend)
    resume = waited(AsyncJobHandle.resume)
    scale = waited(AsyncJobHandle.scale)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel it, where it goes on."""
        self.cancel()

    def show(self, timeout_s: float | None = None) -> JobView:
        """Show the job in a notebook until it ends, and return how it stands then.

        The picture changes in its place, by IPython's display alone, and stays as it was last. Arguments and
        errors as of `wait`.

        Raises:
            UserError: IPython is not installed.
        """
        from gangline.client.live_picture import show

        return show(self._asynchronous, timeout_s)
