"""The Python client for scripts and notebooks: what `AsyncClient` does, waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar, Unpack, overload

from gangline.client.async_client import AsyncClient, on_standard_error, on_standard_output
from gangline.client.loop_thread import LOOP, in_calling_thread
from gangline.client.notices import Say
from gangline.client.run.call import RunOptions
from gangline.client.run.manifest import Manifest
from gangline.client.run_report import RunReport
from gangline.client.sync_job import JobHandle

T = TypeVar("T")


class Client:
    """A cluster, seen from Python: this machine's own one, or one of a kubeconfig.

    It may be used by several threads. Arguments as of `AsyncClient`.
    """

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
        self._client = AsyncClient(
            cluster=cluster,
            context=context,
            kubeconfig=kubeconfig,
            namespace=namespace,
            image=image,
            say=in_calling_thread(say),
        )

    def __repr__(self) -> str:
        return repr(self._client).replace("Async", "", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held: jobs go on."""

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
    ) -> list[T]: ...

    @overload
    def run(
        self,
        what: Sequence[str],
        ranks: int = 1,
        *,
        timeout_s: float | None = None,
        write: Callable[[str], object] = on_standard_output,
        **options: Unpack[RunOptions],
    ) -> JobHandle: ...

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
    ) -> list[T] | JobHandle:
        """Run a function or a program on ranks, wait for its end, and return what the ranks returned.

        Ctrl-C, or the stop button of a notebook, deletes the job. When this process is killed, or its kernel
        restarts, the job goes on; `job` finds it again, and its `results` are there.

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
        call = self._client._call(what, ranks, args, kwargs, options)
        found: list[T] | JobHandle
        if call.function is None:
            found = JobHandle(LOOP.call(self._client._run_program(call, timeout_s, in_calling_thread(write))))
        else:
            found = LOOP.call(self._client._run_function(call, timeout_s, in_calling_thread(write)))
        return found

    def start(
        self,
        what: Callable[..., object] | Sequence[str],
        ranks: int = 1,
        *,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> JobHandle:
        """Begin what `run` does, and return its job, which goes on by itself. Arguments as there."""
        call = self._client._call(what, ranks, args, kwargs, options)
        return JobHandle(LOOP.call(self._client._start(call)))

    def submit(self, manifest: Manifest) -> JobHandle:
        """Create the objects of a manifest, and return its one job, which goes on by itself.

        Args:
            manifest: a file, a folder with files, an object, or several objects.

        Raises:
            UserError: it has no job, or several; it breaks a rule; another job of that name goes on.
            ClusterError: the cluster refuses it, or cannot be reached.
        """
        return JobHandle(LOOP.call(self._client.submit(manifest)))

    def submit_all(self, manifest: Manifest) -> list[JobHandle]:
        """Create the objects of a manifest, and return its jobs, of which there may be none; as `submit`."""
        return [JobHandle(job) for job in LOOP.call(self._client.submit_all(manifest))]

    def job(self, name: str) -> JobHandle:
        """Return a job by its name, `KIND/NAME`, or the id of a run: one that is there, else the newest run.

        Raises:
            NoSuchJobError: there is neither.
            ClusterError: the cluster cannot be reached, and no such run is kept.
        """
        return JobHandle(LOOP.call(self._client.job(name)))

    def jobs(self, *, all_namespaces: bool = False) -> list[JobHandle]:
        """Return the jobs of the namespace, or of all, oldest first, each with a `view` of how it stands.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        found = LOOP.call(self._client.jobs(all_namespaces=all_namespaces))
        return [JobHandle(job) for job in found]

    def runs(self, name: str = "", *, failed: bool = False, limit: int = 20) -> list[RunReport]:
        """Return what ran, the newest first: also runs whose jobs are gone, and while the cluster is down.

        Args:
            name: of the runs; `train*` for all that begin so; empty for all.
            failed: only those that failed, were cancelled or lost.
            limit: how many at most.
        """
        return LOOP.call(self._client.runs(name, failed=failed, limit=limit))
