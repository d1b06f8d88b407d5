"""A job, for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

import msgspec

from gangline.client.columns import Columns, columns_of
from gangline.client.followed_job import FollowedJob, returned
from gangline.client.functions import Results
from gangline.client.jobs.job_lookup import FoundJob, NoSuchJobError, find_past, open_job, pods_of
from gangline.client.jobs.log_reading import check_log, choose_pods, read_log
from gangline.client.jobs.merged_lines import merged_lines
from gangline.client.jobs.one_job import read_job
from gangline.client.jobs.past_failure import past_outcome
from gangline.client.notices import Say, silent
from gangline.client.run.create_or_attach import delete_job
from gangline.client.run.result import failure_of
from gangline.client.run.submission import Claimed, follow_job
from gangline.client.target import ClusterTarget
from gangline.clock import now
from gangline.errors import UserError
from gangline.jobs.job_changes import WORKERS_MAX, Change, scaling, suspension
from gangline.workloads.job_outcome import JobOutcome, cause_of
from gangline.workloads.job_start import JobRef
from gangline.workloads.job_state import finished
from gangline.workloads.job_view import JobView, view_job
from gangline.workloads.kinds import kind_of


class AsyncJobHandle:
    """A job of a cluster, there or of the past; it holds no connection.

    As a context (`async with`) it is cancelled at the end of the block where it still goes on.

    Attributes:
        name, namespace, kind: of it.
        uid: its own, which tells it from others of its name.
        view: as it was last seen; None before `refresh` or `wait`, unless a list made it.
    """

    def __init__(
        self, target: ClusterTarget, ref: JobRef, view: JobView | None = None, say: Say = silent
    ) -> None:
        self.ref, self.view = ref, view
        self.kind, self.namespace, self.name, self.uid = ref
        self._target = msgspec.structs.replace(target, namespace=self.namespace)
        self._say = say

    def __repr__(self) -> str:
        seen = f" {self.view.status.lower()}" if self.view else ""
        return f"<{type(self).__name__} {self.ref}{seen}>"

    async def refresh(self) -> JobView:
        """Look at the job, and return what is seen: status, reason, pods.

        Raises:
            NoSuchJobError: it is gone, and no run of it is kept.
            ClusterError: the cluster cannot be reached, and no run of it is kept.
        """
        async with self._found() as found:
            self.view = await read_job(found)
        return self.view

    async def wait(self, timeout_s: float | None = None, *, check: bool = False) -> JobView:
        """Wait for the end of the job, and return how it stands then; to cancel the wait leaves it alone.

        Args:
            timeout_s: how long at most; None for no bound.
            check: raise an error for a job that did not succeed.

        Raises:
            TimeoutError: it goes on.
            JobFailedError: with `check`, why it failed.
        """
        outcome = await self.follow(FollowedJob(lambda text: None, self._say), timeout_s)
        if check and (failure := failure_of(outcome)):
            raise failure
        assert self.view is not None
        return self.view

    async def results(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for the end of the job of a function, and return what each rank returned, by rank.

        They are read from its log, also when another process began the run, or the job is gone. They are
        unpickled: take those of jobs alone that you trust.

        Raises:
            RanksFailedError: a rank raised, or ended without a result; it is no job of a function.
            TimeoutError: it goes on.
        """
        view: FollowedJob[Any] = FollowedJob(lambda text: None, self._say)
        outcome = await self.follow(view, timeout_s)
        return returned(view.results, outcome)

    async def follow(self, view: FollowedJob[Any], timeout_s: float | None = None) -> JobOutcome:
        """Follow the job to its end, or read what is left of it; `view` is told what happens."""
        async with asyncio.timeout(timeout_s), self._found() as found:
            if found.client is not None and not finished(found.job):
                claimed = Claimed(kind_of(found.job).resource, found.job, was_there=True)
                outcome = await follow_job(found.client, claimed, self._target, view, self._say)
                seen = view_job(outcome.job, outcome.pods, now(), (), cause_of(outcome))
                gone = outcome.status == "DELETED"
                self.view = msgspec.structs.replace(seen, status="CANCELLED") if gone else seen
                return outcome
            self.view = await read_job(found)
            return await _past_outcome(found, view.results)

    async def logs(
        self, *, follow: bool = False, tail: int | None = None, instance: str = ""
    ) -> AsyncGenerator[str, None]:
        """Yield the lines of the job's log, without their ends: rank 0's as they are, others behind `[N] `.

        Args:
            follow: go on until it ends; waits for its start.
            tail: only so many of the last lines.
            instance: a pod, instead of the primary one.

        Raises:
            ClusterError: it has no log yet; with `follow` that is waited for.
            UserError: it has no such pod.
        """
        async with self._found() as found:
            if found.past is not None:
                check_log(found.past.record)
                follow = False  # nothing comes any more
            pods = await choose_pods(found.reader, found.job, instance or None, wait=follow)
            options = {"follow": follow, "tail_lines": tail}
            logs = [read_log(found.reader, pod, options) for pod in pods]
            async with aclosing(merged_lines(logs)) as lines:
                async for line in lines:
                    yield line

    async def metrics(self) -> Columns:
        """Return what its training has reported until now, as columns; empty where it reports nothing.

        Cost: reads the whole log of the primary pod.
        """
        pieces: list[bytes] = []
        async with self._found() as found:
            pods = await choose_pods(found.reader, found.job, None, wait=False)
            name = pods[0]["metadata"]["name"]
            async with aclosing(found.reader.logs(name, self.namespace, timestamps=True)) as read:
                pieces = [piece async for piece in read]
        return columns_of(b"".join(pieces).decode(errors="replace").splitlines())

    async def explain(self, *, placement: bool = False) -> dict[str, Any]:
        """Return why the job waits and what would help, as `gangline explain -o json` prints it.

        Args:
            placement: also where its GPUs are and what that is worth, as `placement`.
        """
        from gangline.client.explain.explanation import explain_job
        from gangline.client.explain.workload import DEFAULT_MODEL, read_workload

        workload = read_workload(DEFAULT_MODEL, None, "")
        return await explain_job(self._target, self._word, workload, placement=placement)

    async def cancel(self) -> None:
        """Delete the job and wait until its pods are gone; one that is over, or gone, stays as it is.

        Raises:
            ClusterError: something of it is still there after 60 s.
        """
        try:
            async with self._found() as found:
                if found.client is not None and not finished(found.job):
                    await delete_job(found.client, kind_of(found.job).resource, found.job)
        except NoSuchJobError:
            return

    async def suspend(self) -> None:
        """Have its pods end, and their GPUs go free, until `resume`; what is not saved is lost.

        Raises:
            UserError: it is over, or its kind knows no suspension.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        await self._change(lambda job: suspension(job, is_wanted=True), "suspended")

    async def resume(self) -> None:
        """Let it go on, from its checkpoint where its training reads one. Errors as of `suspend`."""
        await self._change(lambda job: suspension(job, is_wanted=False), "resumed")

    async def scale(self, workers: int) -> None:
        """Give it another number of workers; whether its ranks bear that, its program knows.

        Raises:
            UserError: it is over, or has no role of workers; the number is none.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        if not 0 <= workers <= WORKERS_MAX:
            raise UserError(f"workers must be 0 to {WORKERS_MAX} (found `{workers}`)")
        await self._change(lambda job: scaling(job, workers), "scaled")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel it, where it goes on."""
        await self.cancel()

    async def _change(self, change: Change, what: str) -> None:
        async with self._found() as found:
            if found.client is None or finished(found.job):
                raise UserError(f"{self.ref} is over, and cannot be {what}")
            patch = change(found.job)
            if patch is None:
                raise UserError(f"a {self.kind} cannot be {what}")
            resource = kind_of(found.job).resource
            await found.client.patch(resource, self.name, patch, self.namespace)

    @property
    def _word(self) -> str:
        return f"{kind_of({'kind': self.kind}).words[0]}/{self.name}"

    @asynccontextmanager
    async def _found(self) -> AsyncIterator[FoundJob]:
        """Find this very job: where another one has its name by now, what is kept of it."""
        async with open_job(self._target, self._word) as found:
            if found.job["metadata"].get("uid") != self.uid:
                past = find_past(self._target, self.uid, self.namespace)
                if past is None:
                    raise NoSuchJobError(f"{self.ref} is gone, and no run of it is kept")
                found = past
            yield found


async def _past_outcome(found: FoundJob, results: Results[Any]) -> JobOutcome:
    """Return the outcome of a job that is over; what its ranks told is read from its log."""
    for pod in await choose_pods(found.reader, found.job, None, wait=False):
        async with aclosing(read_log(found.reader, pod, {"follow": False})) as pieces:
            async for _, records in pieces:
                for record in records:
                    results.take(record)
    return await past_outcome(found.reader, found.job, await pods_of(found.reader, found.job))
