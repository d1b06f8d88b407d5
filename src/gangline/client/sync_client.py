"""The Python client for scripts and notebooks: what `AsyncClient` does, waited for."""

from __future__ import annotations

from typing import Self

from gangline.client.async_client import ClusterCalls
from gangline.client.async_job import AsyncJobHandle
from gangline.client.sync_job import JobHandle
from gangline.client.waited import arguments_of, waited


class _Calls(ClusterCalls[JobHandle]):
    def _shown(self, job: AsyncJobHandle) -> JobHandle:
        return JobHandle(job)


class Client:
    """A cluster, seen from Python: this machine's own one, or one of a kubeconfig.

    It may be used by several threads. Arguments as of `AsyncClient`.
    """

    _asynchronous: ClusterCalls[JobHandle]

    @arguments_of(_Calls)
    def __init__(self) -> None:
        """Take what `AsyncClient` takes."""

    def __repr__(self) -> str:
        return repr(self._asynchronous).replace("_Calls", type(self).__name__, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held: jobs go on."""

    run = waited(_Calls.run)
    start = waited(_Calls.start)
    submit = waited(_Calls.submit)
    submit_all = waited(_Calls.submit_all)
    job = waited(_Calls.job)
    jobs = waited(_Calls.jobs)
    runs = waited(_Calls.runs)
