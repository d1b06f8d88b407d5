"""A job, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from gangline.client.async_job import AsyncJobHandle
from gangline.client.columns import Columns
from gangline.client.job_picture import job_picture
from gangline.client.loop_thread import LOOP
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
        self._job = job
        self.kind, self.namespace, self.name, self.uid = job.ref

    def __repr__(self) -> str:
        return repr(self._job).replace("Async", "", 1)

    def _repr_html_(self) -> str:
        return job_picture(self.view or self.refresh())

    @property
    def view(self) -> JobView | None:
        """How it was last seen; None before `refresh` or `wait`, unless a list made it."""
        return self._job.view

    def refresh(self) -> JobView:
        """Look at the job, and return what is seen: status, reason, pods.

        Raises:
            NoSuchJobError: it is gone, and no run of it is kept.
            ClusterError: the cluster cannot be reached, and no run of it is kept.
        """
        return LOOP.call(self._job.refresh())

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> JobView:
        """Wait for the end of the job, and return how it stands then.

        Args:
            timeout_s: how long at most; None for no bound.
            check: raise an error for a job that did not succeed.

        Raises:
            TimeoutError: it goes on.
            JobFailedError: with `check`, why it failed.
        """
        return LOOP.call(self._job.wait(timeout_s, check=check))

    def results(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for the end of the job of a function, and return what each rank returned, by rank.

        They are read from its log, also when another process began the run, or the job is gone. They are
        unpickled: take those of jobs alone that you trust.

        Raises:
            RanksFailedError: a rank raised, or ended without a result; it is no job of a function.
            TimeoutError: it goes on.
        """
        return LOOP.call(self._job.results(timeout_s))

    def logs(self, *, follow: bool = False, tail: int | None = None, instance: str = "") -> Iterator[str]:
        """Yield the lines of the job's log, without their ends: rank 0's as they are, others behind `[N] `.

        Args:
            follow: go on until it ends; waits for its start.
            tail: only so many of the last lines.
            instance: a pod, instead of the primary one.

        Raises:
            ClusterError: it has no log yet; with `follow` that is waited for.
            UserError: it has no such pod.
        """
        return LOOP.iterate(self._job.logs(follow=follow, tail=tail, instance=instance))

    def metrics(self) -> Columns:
        """Return what its training has reported until now, as columns; empty where it reports nothing.

        Cost: reads the whole log of the primary pod.
        """
        return LOOP.call(self._job.metrics())

    def explain(self, *, placement: bool = False) -> dict[str, Any]:
        """Return why the job waits and what would help, as `gangline explain -o json` prints it.

        Args:
            placement: also where its GPUs are and what that is worth, as `placement`.
        """
        return LOOP.call(self._job.explain(placement=placement))

    def cancel(self) -> None:
        """Delete the job and wait until its pods are gone; one that is over, or gone, stays as it is.

        Raises:
            ClusterError: something of it is still there after 60 s.
        """
        LOOP.call(self._job.cancel())

    def suspend(self) -> None:
        """Have its pods end, and their GPUs go free, until `resume`; what is not saved is lost.

        Raises:
            UserError: it is over, or its kind knows no suspension.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        LOOP.call(self._job.suspend())

    def resume(self) -> None:
        """Let it go on, from its checkpoint where its training reads one. Errors as of `suspend`."""
        LOOP.call(self._job.resume())

    def scale(self, workers: int) -> None:
        """Give it another number of workers; whether its ranks bear that, its program knows.

        Raises:
            UserError: it is over, or has no role of workers; the number is none.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        LOOP.call(self._job.scale(workers))

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

        return show(self._job, timeout_s)
