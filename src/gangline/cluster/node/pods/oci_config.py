"""From what the shim is to start to the configuration of an OCI runtime. Pure.

What only the shim knows stays open for it to fill in: the root's folder, the sources of bind mounts, and the
namespaces and devices of the pod. The container is given what containerd and Docker give: a root of its own,
the kept capabilities, a ``/dev`` of the usual devices, and the masked parts of ``/proc`` and ``/sys``.

Source: OCI runtime specification 1.0.2 (config.md, config-linux.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from gangline.cluster.node.pods.privileges import CAPABILITY_NAMES

_MASKED = (
    "/proc/acpi /proc/asound /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list /proc/timer_stats "
    "/proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
).split()
_READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()
_DEFAULT_DEVICES = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (136, None))
"""null, zero, full, random, urandom, tty, ptmx and the pseudo-terminals."""

_CPU_PERIOD_US = 100_000


def oci_config(
    spec: Mapping[str, Any],
    *,
    cgroup: str,
    permitted: Container[int],
    memory_bytes: int | None = None,
    cpus: float | None = None,
) -> dict[str, Any]:
    """Return the configuration of one attempt of a container.

    Args:
        spec: what the shim is to start, see ``container_plan.plan_container``.
        cgroup: path of its control group.
        permitted: numbers of the capabilities that the agent has itself; more it cannot give.
        memory_bytes: limit of its memory, None for none.
        cpus: how many processors' time it may use at most, None for all.
    """
    capabilities = [
        f"CAP_{CAPABILITY_NAMES[number]}" for number in spec["capabilities"] if number in permitted
    ]
    user = spec["user"] or {"uid": 0, "gid": 0, "groups": []}
    held = capabilities if user["uid"] == 0 else []
    rules: list[dict[str, Any]] = [{"allow": False, "access": "rwm"}]
    for major, minor in _DEFAULT_DEVICES:
        number = {"major": major} | ({} if minor is None else {"minor": minor})
        rules.append({"allow": True, "type": "c", "access": "rw"} | number)
    resources: dict[str, Any] = {"devices": rules}
    if memory_bytes is not None:
        resources["memory"] = {"limit": memory_bytes}
    if cpus is not None:
        resources["cpu"] = {"quota": max(1000, int(cpus * _CPU_PERIOD_US)), "period": _CPU_PERIOD_US}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": user["uid"], "gid": user["gid"], "additionalGids": user["groups"]},
            "args": spec["argv"],
            "env": [f"{name}={value}" for name, value in spec["env"].items()],
            "cwd": spec["cwd"],
            "noNewPrivileges": spec["no_new_privileges"],
            "capabilities": {
                "bounding": capabilities,
                "effective": held,
                "permitted": held,
                "inheritable": [],
                "ambient": [],
            },
        },
        "root": {"path": "", "readonly": spec["root"]["read_only"]},
        "mounts": _file_systems(),
        "linux": {
            "namespaces": [],
            "cgroupsPath": cgroup,
            "resources": resources,
            "devices": [],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


def _file_systems() -> list[dict[str, Any]]:
    quiet = ["nosuid", "noexec"]
    return [
        _mount("proc", "/proc", "proc", [*quiet, "nodev"]),
        _mount("tmpfs", "/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        _mount(
            "devpts", "/dev/pts", "devpts", [*quiet, "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        _mount("mqueue", "/dev/mqueue", "mqueue", [*quiet, "nodev"]),
        _mount("sysfs", "/sys", "sysfs", [*quiet, "nodev", "ro"]),
    ]


def _mount(source: str, target: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"source": source, "destination": target, "type": kind, "options": options}
