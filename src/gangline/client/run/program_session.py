"""What follows once the job of a program has been created: its pods get this shell's session, or its code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.user_session import own_session, write_function, write_session
from gangline.launch.pods.call_function import FILE_VARIABLE
from gangline.workloads.job_start import job_ref

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

HandOver = Callable[["ObjectClient", dict[str, Any]], Awaitable[None]]
"""Is called with each job that was created."""


async def no_handover(client: ObjectClient, job: dict[str, Any]) -> None:
    """Hand nothing over: the job of a manifest, or an isolated one."""


def handover_of(
    paths: ClusterPaths, environment: Mapping[str, str], function: bytes | None = None
) -> HandOver:
    """Return what writes this shell's session, with that environment, for a job that was created.

    Args:
        paths: of the cluster.
        environment: all variables of the ranks.
        function: what the ranks call, as ``call_function`` reads it; None for other programs.
    """

    async def hand_over(client: ObjectClient, obj: dict[str, Any]) -> None:
        job = job_ref(obj)
        variables = dict(environment)
        if function is not None:
            variables[FILE_VARIABLE] = str(write_function(paths, job.uid, function))
        write_session(paths, job.uid, own_session(job.namespace, job.name, variables, job.kind))

    return hand_over
