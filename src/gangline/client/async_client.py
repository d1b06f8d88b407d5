"""The Python client for event loops: functions, programs and manifests on ranks; jobs, there and past."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, Self, TypeVar, Unpack, overload

import msgspec

from gangline.api.codec import Document
from gangline.client.async_job import AsyncJobHandle
from gangline.client.followed_job import FollowedJob, returned
from gangline.client.jobs.job_lookup import open_job
from gangline.client.jobs.listing import read_jobs
from gangline.client.jobs.one_job import read_job
from gangline.client.jobs.past_runs import read_runs
from gangline.client.loop_thread import Awaited, in_calling_thread
from gangline.client.manifests import WORKLOADS
from gangline.client.notices import Say
from gangline.client.run.call import Call, RunOptions, call_of, create_call
from gangline.client.run.capacity import check_capacity
from gangline.client.run.create_or_attach import delete_job
from gangline.client.run.gpus import GpuOptions
from gangline.client.run.manifest import Manifest, checked, documents_of
from gangline.client.run.program_session import no_handover
from gangline.client.run.result import failure_of
from gangline.client.run.start import start_cluster
from gangline.client.run.submission import bring_back, create_objects, follow_job
from gangline.client.run_report import RunReport, report_of
from gangline.client.target import ClusterTarget, open_client
from gangline.cluster.daemon.cluster import Cluster
from gangline.cluster.paths import DEFAULT_CLUSTER
from gangline.errors import UnschedulableError, UserError
from gangline.kube.client import Client as KubeClient
from gangline.units import plural
from gangline.workloads.job_outcome import JobOutcome
from gangline.workloads.job_start import Obj, job_ref
from gangline.workloads.job_view import JobView

T = TypeVar("T")
H = TypeVar("H")


def on_standard_error(line: str) -> None:
    """Write a line for people there, where nothing else was asked for."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def on_standard_output(text: str) -> None:
    """Write a piece of a log there, where nothing else was asked for."""
    sys.stdout.write(text)
    sys.stdout.flush()


class ClusterCalls(Generic[H]):
    """What the clients offer; ``H`` is what one gives its users for a job."""

    def __init__(
        self,
        *,
        cluster: str = "",
        context: str = "",
        kubeconfig: str | Path = "",
        namespace: str = "",
        image: str = "",
        say: Say = on_standard_error,
    ) -> None:
        if cluster and (context or kubeconfig):
            raise UserError("cluster is this machine's, context and kubeconfig are not: use one")
        self._target = ClusterTarget(
            cluster=cluster or os.environ.get("GANGLINE_CLUSTER") or DEFAULT_CLUSTER,
            context=context or None,
            kubeconfig=Path(kubeconfig) if kubeconfig else None,
            namespace=namespace,
        )
        self._image = image
        self._say = in_calling_thread(say)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._target.title}>"

    def _shown(self, job: AsyncJobHandle) -> H:
        """Return a job as this client gives it to its users."""
        raise NotImplementedError

    @overload
    def run(
        self,
        what: Callable[..., T],
        ranks: int = 1,
        *,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        write: Callable[[str], object] = on_standard_output,
        **options: Unpack[RunOptions],
    ) -> Awaited[list[T]]: ...

    @overload
    def run(
        self,
        what: Sequence[str],
        ranks: int = 1,
        *,
        timeout_s: float | None = None,
        write: Callable[[str], object] = on_standard_output,
        **options: Unpack[RunOptions],
    ) -> Awaited[H]: ...

    def run(
        self,
        what: Callable[..., T] | Sequence[str],
        ranks: int = 1,
        *,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        write: Callable[[str], object] = on_standard_output,
        **options: Unpack[RunOptions],
    ) -> Awaited[list[T]] | Awaited[H]:
        """Run a function or a program on ranks, wait for its end, and return what the ranks returned.

        A call that is cancelled or interrupted (Ctrl-C, the stop button of a notebook), or takes too long,
        deletes the job before it ends. When this process is killed, or its kernel restarts, the job goes on;
        `job` finds it again, and its `results` are there.

        Args:
            what: a function, which travels with its closure; or the words of a program.
            ranks: how many, in all.
            args: arguments of the function.
            kwargs: named arguments of the function.
            timeout_s: from the call on, after which the job is deleted; None for no bound.
            write: takes what the ranks print, as it comes.
            options: see `RunOptions`.

        Returns:
            What each rank returned, by rank; of a program its job, which succeeded.

        Raises:
            RanksFailedError: a rank of a function raised, or was ended; its errors and results are in it.
            JobFailedError: a program failed.
            TimeoutError: it took longer than `timeout_s`.
            UserError: it cannot be run as it was asked for.
            UnschedulableError: it asks for more than there will ever be.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        call = self._call(what, ranks, args, kwargs, options)
        if call.function is None:
            return self._run_program(call, timeout_s, in_calling_thread(write))
        return self._run_function(call, timeout_s, in_calling_thread(write))

    def start(
        self,
        what: Callable[..., object] | Sequence[str],
        ranks: int = 1,
        *,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> Awaited[H]:
        """Begin what `run` does, and return its job, which goes on by itself. Arguments as there."""
        return self._start(self._call(what, ranks, args, kwargs, options))

    async def submit(self, manifest: Manifest) -> H:
        """Create the objects of a manifest, and return its one job, which goes on by itself.

        Args:
            manifest: a file, a folder with files, an object, or several objects.

        Raises:
            UserError: it has no job, or several; it breaks a rule; another job of that name goes on.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        documents = documents_of(manifest)
        jobs = [document for document in documents if document.kind in WORKLOADS]
        if len(jobs) != 1:
            raise UserError(
                f"a manifest with one job was expected, and this one has {len(jobs)}",
                hint="submit_all takes any number",
            )
        return (await self._submit(documents))[0]

    async def submit_all(self, manifest: Manifest) -> list[H]:
        """Create the objects of a manifest, and return its jobs, of which there may be none; as `submit`."""
        return await self._submit(documents_of(manifest))

    async def job(self, name: str) -> H:
        """Return a job by its name, `KIND/NAME`, or the id of a run: one that is there, else the newest run.

        Raises:
            NoSuchJobError: there is neither.
            ClusterError: the cluster cannot be reached, and no such run is kept.
        """
        async with open_job(self._target, name) as found:
            view = await read_job(found)
        return self._handle(found.job, view)

    async def jobs(self, *, all_namespaces: bool = False) -> list[H]:
        """Return the jobs of the namespace, or of all, oldest first, each with a `view` of how it stands.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        async with open_client(self._target) as client:
            namespace = None if all_namespaces else client.connection.namespace
            jobs, views = await read_jobs(client, namespace)
        return [self._handle(job, view) for job, view in zip(jobs, views, strict=True)]

    async def runs(self, name: str = "", *, failed: bool = False, limit: int = 20) -> list[RunReport]:
        """Return what ran, the newest first: also runs whose jobs are gone, and while the cluster is down.

        Args:
            name: of the runs; `train*` for all that begin so; empty for all.
            failed: only those that failed, were cancelled or lost.
            limit: how many at most.
        """
        found = await read_runs(self._target, name or None, only_failed=failed, limit=limit, say=self._say)
        return [report_of(values) for values in found]

    def _handle(self, job: Obj, view: JobView | None = None) -> H:
        return self._shown(AsyncJobHandle(self._target, job_ref(job), view, self._say))

    async def _start(self, call: Call) -> H:
        async with self._open(call.nodes) as client:
            claimed = await create_call(client, self._target, call, self._say)
        return self._handle(claimed.job)

    async def _submit(self, documents: list[Document]) -> list[H]:
        documents = await asyncio.to_thread(checked, self._target, documents, self._say)
        async with self._open() as client:
            if self._target.is_local:
                await asyncio.to_thread(check_capacity, Cluster(self._target.paths), documents)
            claimed = await create_objects(client, documents, self._target, no_handover, say=self._say)
        return [self._handle(one.job) for one in claimed]

    def _call(
        self,
        what: Callable[..., object] | Sequence[str],
        ranks: int,
        args: Sequence[object],
        kwargs: Mapping[str, object] | None,
        options: RunOptions,
    ) -> Call:
        """Return what `run` and `start` ask for, checked, a function pickled by this very thread."""
        is_local = self._target.is_local
        asked = Call(**options, ranks=ranks)
        if not is_local:
            asked = msgspec.structs.replace(asked, image=asked.image or self._image)
        asked.check(is_local=is_local)
        return call_of(what, args, kwargs or {}, is_local=is_local, options=asked)

    async def _run_function(
        self, call: Call, timeout_s: float | None, write: Callable[[str], object]
    ) -> list[T]:
        """Run a function as `run` does."""
        view: FollowedJob[T] = FollowedJob(write, self._say)
        outcome = await self._carry_out(call, timeout_s, view)
        return returned(view.results, outcome)

    async def _run_program(self, call: Call, timeout_s: float | None, write: Callable[[str], object]) -> H:
        """Run a program as `run` does."""
        outcome = await self._carry_out(call, timeout_s, FollowedJob(write, self._say))
        if failure := failure_of(outcome):
            raise failure
        return self._handle(outcome.job)

    async def _carry_out(self, call: Call, timeout_s: float | None, view: FollowedJob[T]) -> JobOutcome:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit, self._open(call.nodes) as client:
                creating = asyncio.create_task(create_call(client, self._target, call, self._say))
                try:
                    claimed = await asyncio.shield(creating)
                    return await follow_job(client, claimed, self._target, view, self._say)
                except (asyncio.CancelledError, UnschedulableError):
                    claimed = await creating  # to its end: nobody can delete half a creation
                    await asyncio.shield(delete_job(client, claimed.resource, claimed.job))
                    raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = f"{call.base} on {plural(call.ranks, 'rank')}"
            raise TimeoutError(f"{what} took longer than {timeout_s:g} s; its job is deleted") from error

    @asynccontextmanager
    async def _open(self, nodes: int = 1) -> AsyncIterator[KubeClient]:
        """Open a client of the API server; the one-machine cluster is started first."""
        if not self._target.is_local:
            async with open_client(self._target) as client:
                yield client
            return
        cluster = Cluster(self._target.paths)
        await asyncio.to_thread(start_cluster, cluster, nodes or 1, GpuOptions(), self._say)
        async with open_client(self._target, bring_back=bring_back(self._target, self._say)) as client:
            yield client


class AsyncClient(ClusterCalls[AsyncJobHandle]):
    """A cluster, seen from Python: this machine's own one, or one of a kubeconfig.

    It holds no connection between calls, so that it survives restarts of the cluster, and needs no closing;
    `async with` may be written, and ends no job.
    The one-machine cluster is started by what needs it, and ends itself when nobody uses it.

    Args:
        cluster: name of the one-machine cluster; empty for ``$GANGLINE_CLUSTER``, else `default`.
        context: a context of the kubeconfig instead.
        kubeconfig: the file instead of ``$KUBECONFIG`` or ``~/.kube/config``.
        namespace: of the jobs; empty for that of the context, here `default`.
        image: of the pods of functions and programs on a cluster of a kubeconfig.
        say: is told what happens on the way, a line at a time; by default it is written to standard error.

    Raises:
        UserError: `cluster` stands beside a context or kubeconfig.
    """

    def _shown(self, job: AsyncJobHandle) -> AsyncJobHandle:
        return job

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held: jobs go on."""
