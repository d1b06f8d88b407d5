"""The Python client: jobs from a program or a notebook, on this machine or a cluster of a kubeconfig.

Its public names are those of ``__all__``; each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.client.async_client import AsyncClient
    from gangline.client.async_job import AsyncJobHandle
    from gangline.client.columns import Columns
    from gangline.client.functions import RankError, RanksFailedError
    from gangline.client.jobs.job_lookup import NoSuchJobError
    from gangline.client.run.call import RunOptions
    from gangline.client.run.pod_options import PodOptions
    from gangline.client.run_report import RunReport
    from gangline.client.sync_client import Client
    from gangline.client.sync_job import JobHandle

_PLACES = {
    "NoSuchJobError": "jobs.job_lookup",
    "RunReport": "run_report",
    "Columns": "columns",
    "AsyncClient": "async_client",
    "AsyncJobHandle": "async_job",
    "Client": "sync_client",
    "JobHandle": "sync_job",
    "PodOptions": "run.pod_options",
    "RankError": "functions",
    "RanksFailedError": "functions",
    "RunOptions": "run.call",
}

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "Client",
    "Columns",
    "JobHandle",
    "NoSuchJobError",
    "PodOptions",
    "RankError",
    "RanksFailedError",
    "RunOptions",
    "RunReport",
]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
