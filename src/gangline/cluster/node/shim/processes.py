"""Which processes belong to a pod, and how they are ended: descendants first, an environment marker second.

Linux only; elsewhere the functions find nothing, and process groups must do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

POD_MARKER = "GANGLINE_POD_UID"
CLUSTER_MARKER = "GANGLINE_CLUSTER_ID"
CONTAINER_MARKER = "GANGLINE_CONTAINER"
RANK_VARIABLES = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}
_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """Return the direct children of all threads of a process; empty when it is gone."""
    found: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            found += [int(text) for text in (task / "children").read_bytes().split()]
    except OSError:
        pass
    return found


def descendants(pid: int, *, without: Iterable[int] = ()) -> list[int]:
    """Return every process below ``pid``, leaving out the trees that start at one of ``without``."""
    skipped = set(without)
    found: list[int] = []
    waiting = [child for child in children(pid) if child not in skipped]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += [child for child in children(current) if child not in skipped]
    return found


def is_zombie(pid: int) -> bool:
    """Return whether the process has ended and only waits to be reaped (or is gone)."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return True
    return text[text.rindex(b")") + 2 : text.rindex(b")") + 3] in (b"Z", b"X")


def kill_all(pids: Iterable[int], signal_number: int = signal.SIGKILL) -> None:
    """Send a signal to each; those already gone, or not ours, are passed over."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except OSError:
            continue


def kill_groups(leaders: Iterable[int]) -> None:
    """Kill process groups by their leaders, where descendants cannot be listed; nothing on Linux."""
    if _PROC.is_dir():
        return
    for pid in leaders:
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            continue


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment a process was started with; empty if it is gone or not ours to read."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def topmost_ranks(roots: Iterable[int]) -> list[int]:
    """Return the first processes of each tree that an MPI launcher has told a rank, not their children."""
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        current = waiting.pop()
        if RANK_VARIABLES & environment_of(current).keys():
            found.append(current)
        else:
            waiting += children(current)
    return found


def marked(marker: str, value: str) -> list[int]:
    """Return the processes whose environment holds ``marker=value``.

    Cost: reads every process's environment, about 20 µs each.
    """
    needle = f"{marker}={value}".encode()
    found: list[int] = []
    try:
        candidates = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    for pid in candidates:
        try:
            raw = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if needle in raw.split(b"\0"):
            found.append(pid)
    return found


def sweep(pod_uid: str, *, limit_s: float = 2.0) -> int:
    """Kill every process that carries this pod's marker until none is left; return how many were found.

    For a pod whose shim was killed: nobody else knows its descendants any more.
    """
    deadline = time.monotonic() + limit_s
    seen: set[int] = set()
    empty_looks = 0
    while True:
        pids = [pid for pid in marked(POD_MARKER, pod_uid) if not is_zombie(pid)]
        empty_looks = 0 if pids else empty_looks + 1
        # twice: at its exec a process has no environment for a moment, so one look may miss it
        if empty_looks == 2 or time.monotonic() > deadline:
            return len(seen)
        seen.update(pids)
        kill_all(pids)
        time.sleep(0.005)
