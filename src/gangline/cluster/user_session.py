"""The session of the user who called ``gangline run -- PROGRAM``: environment, rights, limits.

It never becomes a part of an object. The command writes it into a file of the cluster's folder that only its
owner can read, named by the uid of the job that it has just created; the node agent reads it there. Pods that
are to get it carry ``ANNOTATION``, which the API server takes from the cluster's owner alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from gangline.api.resources import MPIJOBS
from gangline.cluster.paths import ClusterPaths

ANNOTATION = "gangline.dev/user-session"
"""On the pods of a program: ``machine`` or ``node``."""

MACHINE = "machine"
"""The pod has the machine's files, network and host name."""

NODE = "node"
"""The pod has the machine's files, and where the isolation allows an address and a host name of its own."""

FUNCTION = ".function"
"""End of the name of a file beside a session: the function that the ranks call."""

_LIMITS = {
    "as": "RLIMIT_AS",
    "core": "RLIMIT_CORE",
    "cpu": "RLIMIT_CPU",
    "data": "RLIMIT_DATA",
    "fsize": "RLIMIT_FSIZE",
    "memlock": "RLIMIT_MEMLOCK",
    "nofile": "RLIMIT_NOFILE",
    "nproc": "RLIMIT_NPROC",
    "rss": "RLIMIT_RSS",
    "stack": "RLIMIT_STACK",
}
"""Limits of a shell (``ulimit -a``), by their names in ``limits.conf``; systems lack some of them."""


class UserSession(msgspec.Struct, frozen=True):
    """What a program finds besides files and network.

    Attributes:
        namespace, name, kind: of the job.
        environment: all variables.
        uid, gid, groups: who the user is; ``groups`` are the supplementary ones.
        umask: of new files.
        limits: name as in ``limits.conf`` -> soft and hard limit, -1 for none.
        cpus: on which the shell may run; empty where the system does not say.
    """

    namespace: str
    name: str
    environment: Mapping[str, str]
    uid: int
    gid: int
    groups: tuple[int, ...]
    umask: int
    limits: Mapping[str, tuple[int, int]]
    cpus: tuple[int, ...]
    kind: str = MPIJOBS.kind

    def process(self, kind: str, isolation: str) -> dict[str, Any]:
        """Return what the pod's shim sets in a process before the program starts.

        Args:
            kind: ``MACHINE`` or ``NODE``.
            isolation: of the cluster. In ``user`` mode a host name of its own needs the agent's user
                namespace, where the user would be called root.
        """
        is_called_root = isolation == "user" and kind == NODE
        return {
            "map_user": [self.uid, self.gid] if is_called_root else None,
            "umask": self.umask,
            "groups": list(self.groups),
            "limits": {_LIMITS[name]: list(pair) for name, pair in self.limits.items() if name in _LIMITS},
            "cpus": list(self.cpus),
        }


def own_session(
    namespace: str, name: str, environment: Mapping[str, str], kind: str = MPIJOBS.kind
) -> UserSession:
    """Return the session of this process, with that environment."""
    import resource

    umask = os.umask(0o077)
    os.umask(umask)
    limits = {
        short: resource.getrlimit(getattr(resource, name))
        for short, name in _LIMITS.items()
        if hasattr(resource, name)
    }
    cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return UserSession(
        namespace=namespace,
        name=name,
        environment=dict(environment),
        uid=os.getuid(),
        gid=os.getgid(),
        groups=tuple(os.getgroups()),
        umask=umask,
        limits=limits,
        cpus=cpus,
        kind=kind,
    )


def write_session(paths: ClusterPaths, job_uid: str, session: UserSession) -> None:
    """Hand a session over to the node agent, whole; mode 0600 in a folder of mode 0700.

    Raises:
        OSError: it cannot be written.
    """
    paths.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = paths.sessions / f".{job_uid}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:  # other characters are escaped
        json.dump(asdict(session), file)
    draft.replace(session_file(paths, job_uid))


def write_function(paths: ClusterPaths, job_uid: str, data: bytes) -> Path:
    """Keep the function that the ranks of a job call, beside its session and as long; return where it lies.

    Raises:
        OSError: it cannot be written.
    """
    paths.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = session_file(paths, job_uid).with_suffix(FUNCTION)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
    return file


def session_file(paths: ClusterPaths, job_uid: str) -> Path:
    """Return where the session of a job lies."""
    return paths.sessions / f"{job_uid}.json"


def read_session(file: Path) -> UserSession | None:
    """Return a session, None when there is none or it cannot be read."""
    try:
        found = json.loads(file.read_text(encoding="ascii"))
        found["limits"] = {name: tuple(pair) for name, pair in found["limits"].items()}
        return UserSession(**found | {key: tuple(found[key]) for key in ("groups", "cpus")})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def asks_for_session(value: Any) -> bool:
    """Return whether an object, or a template anywhere in it, carries the annotation. Pure."""
    if isinstance(value, dict):
        return ANNOTATION in value or any(map(asks_for_session, value.values()))
    return isinstance(value, list) and any(map(asks_for_session, value))
