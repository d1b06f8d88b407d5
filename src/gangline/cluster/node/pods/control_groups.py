"""Control groups of containers: they hold limits of memory and processors, and tell of a lack of memory.

A group is named by cluster, pod, container and attempt, so that nobody has to remember it. Both layouts of
the kernel are known: one tree (version 2), and a tree for each controller (version 1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gangline.api.core import Container
from gangline.units import parse_quantity, quantity_ceil

CGROUPS = Path("/sys/fs/cgroup")
CPU_PERIOD_US = 100_000
CPU_QUOTA_MIN_US = 1_000
"""The kernel takes no less."""
_UID_CHARS = 36


def group_name(cluster_id: str, uid: str, container: str, attempt: int) -> str:
    """Return the name of the group of one attempt of a container."""
    return f"{_cgroup_prefix(cluster_id)}{uid}-{container}-{attempt}"


def hold_limits(container: Container, name: str) -> list[str]:
    """Make the group of a container that has limits; return the files that take a process into it.

    Raises:
        OSError: the system gives this user no groups.
    """
    limits = container.resources.limits
    memory = None if "memory" not in limits else quantity_ceil(limits["memory"])
    cpus = None if "cpu" not in limits else float(parse_quantity(limits["cpu"]))
    if memory is None and cpus is None:
        return []
    quota = 0 if cpus is None else max(CPU_QUOTA_MIN_US, int(cpus * CPU_PERIOD_US))
    if (CGROUPS / "cgroup.controllers").exists():
        group = CGROUPS / name
        (CGROUPS / "cgroup.subtree_control").write_text("+memory +cpu", encoding="ascii")
        group.mkdir(exist_ok=True)
        if memory is not None:
            (group / "memory.max").write_text(str(memory), encoding="ascii")
            (group / "memory.oom.group").write_text("1", encoding="ascii")
        if cpus is not None:
            (group / "cpu.max").write_text(f"{quota} {CPU_PERIOD_US}", encoding="ascii")
        return [str(group / "cgroup.procs")]
    groups = []
    for controller, settings in (
        ("memory", {"memory.limit_in_bytes": memory}),
        ("cpu", {"cpu.cfs_period_us": CPU_PERIOD_US, "cpu.cfs_quota_us": quota or None}),
    ):
        if None not in settings.values():
            group = CGROUPS / controller / name
            group.mkdir(exist_ok=True)
            for file, value in settings.items():
                (group / file).write_text(str(value), encoding="ascii")
            groups.append(str(group / "cgroup.procs"))
    return groups


def _cgroup_prefix(cluster_id: str) -> str:
    return f"gangline-{cluster_id}-"


def was_out_of_memory(cluster_id: str, uid: str, report: dict[str, Any]) -> bool:
    """Return whether the kernel killed a process of an ended container for want of memory."""
    name = group_name(cluster_id, uid, report["name"], report["attempt"])
    for path in (CGROUPS / "memory" / name / "memory.oom_control", CGROUPS / name / "memory.events"):
        try:
            pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
            return any(pair[0] == "oom_kill" and pair[1] != "0" for pair in pairs)
        except OSError:
            continue
    return False


def remove_cgroups(cluster_id: str, *, of: str = "", living: Iterable[str] = ()) -> int:
    """Remove empty control groups: of one pod, or of all pods but the living; return how many."""
    kept = set(living)
    prefix = f"{_cgroup_prefix(cluster_id)}{of}"
    removed = 0
    for path in [*CGROUPS.glob(f"{prefix}*"), *CGROUPS.glob(f"*/{prefix}*")]:
        if path.name.removeprefix(_cgroup_prefix(cluster_id))[:_UID_CHARS] in kept:
            continue
        with contextlib.suppress(OSError):
            path.rmdir()
            removed += 1
    return removed
