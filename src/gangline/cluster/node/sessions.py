"""Which pods run in the session of the user who called ``gangline run -- PROGRAM``, and where it lies.

A pod that carries the annotation belongs to a job, by its controllers: to the job itself, or of an MPIJob to
the Job of its launcher. The job's uid names the file that the command has written.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.api.core import Pod
from gangline.api.resources import JOBS, MPIJOBS, PYTORCHJOBS, TRAINJOBS
from gangline.cluster.node.pods.container_env import ConfigError
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.user_session import (
    ANNOTATION,
    FUNCTION,
    MACHINE,
    UserSession,
    read_session,
    session_file,
)
from gangline.jobs.names import JOB_NAME_LABEL
from gangline.kube.errors import ApiError, NotFound
from gangline.workloads.job_state import finished
from gangline.workloads.kinds import BATCH_JOB_LABEL

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

HANDOVER_LIMIT_S = 5.0
"""How long after its start a pod waits for the command that has created its job a moment ago."""
_LOOK_S = 0.01
# 5f3a2c1b-8d1e-4a1c-9a55-0123456789ab
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KINDS = {resource.kind: resource for resource in (MPIJOBS, PYTORCHJOBS, TRAINJOBS, JOBS)}
"""Those that `gangline run -- PROGRAM` makes."""


def kind_of_session(pod: Pod) -> str:
    """Return the annotation's value: ``machine``, ``node``, empty for pods of their own world."""
    return pod.metadata.annotations.get(ANNOTATION, "")


def on_machines_network(pod: Pod) -> bool:
    """Return whether a pod has the network and address of the machine, or of its node."""
    return pod.spec.host_network or kind_of_session(pod) == MACHINE


def name_scope(pod: Pod) -> str:
    """Return whose host names and remote shells a pod sees: its namespace's, or those of its job alone.

    An isolated pod of the namespace would otherwise reach the user's files by a remote shell. A namespace's
    name has no dot.
    """
    if not kind_of_session(pod):
        return pod.metadata.namespace
    labels = pod.metadata.labels
    return f"{pod.metadata.namespace}.{labels.get(JOB_NAME_LABEL) or labels.get(BATCH_JOB_LABEL, '')}"


class Sessions:
    """The sessions that commands have handed over.

    Args:
        client: of the API.
        paths: of the cluster.
    """

    def __init__(self, client: ObjectClient, paths: ClusterPaths) -> None:
        self._client = client
        self._paths = paths

    async def of(self, pod: Pod, *, started_at_s: float, now_s: float) -> UserSession | None:
        """Return the session for a pod, None for a pod that asks for none; waits for one that is on its way.

        Raises:
            ConfigError: the pod asks for one, and its job has none.
        """
        if not kind_of_session(pod):
            return None
        uid = await self._job_uid(pod)
        deadline_s = asyncio.get_running_loop().time() + max(0.0, started_at_s + HANDOVER_LIMIT_S - now_s)
        while True:
            found = read_session(session_file(self._paths, uid)) if uid else None
            if found is not None and found.namespace == pod.metadata.namespace:
                return found
            if not uid or asyncio.get_running_loop().time() > deadline_s:
                raise ConfigError(
                    f"annotation {ANNOTATION}: no session of a user was handed over for the job of this pod; "
                    "only `gangline run -- PROGRAM` does so, a manifest cannot ask for it"
                )
            await asyncio.sleep(_LOOK_S)

    async def _job_uid(self, pod: Pod) -> str:
        """Return the uid of the pod's job, empty when it has none: what a pod says may be no uid."""
        owners: list[Any] = [
            {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": owner.controller}
            for owner in pod.metadata.owner_references
        ]
        owner = _controller(owners)
        if owner.get("kind") == JOBS.kind:
            try:
                job = await self._client.get(JOBS, owner["name"], pod.metadata.namespace)
            except NotFound:
                return ""
            if job["metadata"]["uid"] != owner["uid"]:
                return ""
            owner = _controller(job["metadata"].get("ownerReferences") or []) or owner
        uid = str(owner.get("uid", ""))
        return uid if owner.get("kind") in _KINDS and _UID.fullmatch(uid) else ""

    async def sweep(self) -> None:
        """Remove the sessions of jobs that are over or gone."""
        for file in self._files():
            session = read_session(file)
            if session is not None and await self._is_wanted(session, file.stem):
                continue
            file.unlink(missing_ok=True)
            file.with_suffix(FUNCTION).unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return list(self._paths.sessions.glob("*.json")) if self._paths.sessions.is_dir() else []

    async def _is_wanted(self, session: UserSession, uid: str) -> bool:
        resource = _KINDS.get(session.kind)
        if resource is None:
            return False  # of another version
        try:
            job = await self._client.get(resource, session.name, session.namespace)
        except NotFound:
            return False
        except ApiError:
            return True  # the server is away: nobody knows yet
        return job["metadata"]["uid"] == uid and not finished(job)


def _controller(owners: list[dict[str, Any]]) -> dict[str, Any]:
    return next((owner for owner in owners if owner.get("controller")), {})
