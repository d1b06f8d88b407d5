"""Hand the session of this shell over to the pods of a program, once its job has been created."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.user_session import own_session, write_session

HandOver = Callable[[dict[str, Any]], None]
"""Is called with each job that was created, as the server returned it."""


def no_handover(_: dict[str, Any]) -> None:
    """Hand nothing over: the job of a manifest, or an isolated one."""


def handover_of(paths: ClusterPaths, environment: Mapping[str, str]) -> HandOver:
    """Return what writes this shell's session, with that environment, for a job that was created."""

    def hand_over(job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        session = own_session(metadata["namespace"], metadata["name"], environment)
        write_session(paths, metadata["uid"], session)

    return hand_over
