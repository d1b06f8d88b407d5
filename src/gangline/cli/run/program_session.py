"""Hand the session of this shell over to the pods of a program, once its job has been created."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.user_session import own_session, write_session
from gangline.workloads.job_start import JobRef

HandOver = Callable[[JobRef], None]
"""Is called with each job that was created."""


def no_handover(_: JobRef) -> None:
    """Hand nothing over: the job of a manifest, or an isolated one."""


def handover_of(paths: ClusterPaths, environment: Mapping[str, str]) -> HandOver:
    """Return what writes this shell's session, with that environment, for a job that was created."""

    def hand_over(job: JobRef) -> None:
        write_session(paths, job.uid, own_session(job.namespace, job.name, environment))

    return hand_over
