"""Which processes, links and mounts a one-machine cluster has: whom to kill, and what must not stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gangline.cluster.node.network.pod_network import interface_prefix
from gangline.cluster.node.shim.processes import children, is_zombie
from gangline.cluster.paths import ClusterPaths

_PROC = Path("/proc")


def fork_servers(agent_pid: int) -> list[int]:
    """Return the processes that fork the shims of an agent."""
    return [pid for pid in children(agent_pid) if _name(pid) == "gl-fork-server"]


def shims(paths: ClusterPaths) -> dict[int, str]:
    """Return the shims of a cluster: process id -> uid of the pod, by the lock that each holds."""
    found = {}
    for pid in _pids():
        if _name(pid) != "gl-shim":
            continue
        for path in _open_files(pid):
            if path.name == "shim.lock" and path.parent.parent == paths.pods:
                found[pid] = path.parent.name
    return found


def of_pods(paths: ClusterPaths) -> list[int]:
    """Return the processes of pods, and the shims."""
    marker = f"GANGLINE_CLUSTER_ID={paths.cluster_id}".encode()
    marked = [pid for pid in _pids() if marker in _environment(pid) and not is_zombie(pid)]
    return sorted({*marked, *shims(paths)})


def left_behind(paths: ClusterPaths) -> list[str]:
    """Return what a cluster that is down and purged has left on the machine, in words."""
    home = f"GANGLINE_HOME={paths.state.parent}".encode()
    processes = {pid for pid in _pids() if home in _environment(pid) and not is_zombie(pid)} | {
        *of_pods(paths)
    }
    names = (interface_prefix(paths.cluster_id), f"gl-{paths.cluster_id[:5]}")
    links = [link.name for link in Path("/sys/class/net").iterdir() if link.name.startswith(names)]
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [
        *(f"process {pid} ({_name(pid)})" for pid in sorted(processes - {os.getpid()})),
        *(f"link {name}" for name in links),
        *(f"mount {point}" for point in mounts if point.startswith((f"{paths.state}/", f"{paths.run}/"))),
        *(f"folder {folder}" for folder in (paths.state, paths.run) if folder.exists()),
    ]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _open_files(pid: int) -> list[Path]:
    found = []
    try:
        for entry in (_PROC / str(pid) / "fd").iterdir():
            found.append(entry.readlink())
    except OSError:  # it has ended, or a file was closed meanwhile
        pass
    return found
