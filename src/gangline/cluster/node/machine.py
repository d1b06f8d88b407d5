"""What this machine has: cores, memory, file systems, folders to hide from pods."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from pathlib import Path

from gangline.cluster.paths import ClusterPaths
from gangline.units import format_bytes

PODS_MAX = 1000
# fmt: off
_SKIPPED_TYPES = frozenset((
    "proc", "sysfs", "devtmpfs", "devpts", "tmpfs", "cgroup", "cgroup2", "pstore", "bpf", "tracefs",
    "debugfs", "securityfs", "configfs", "mqueue", "hugetlbfs", "autofs", "binfmt_misc", "fusectl",
    "efivarfs", "overlay", "squashfs", "ramfs", "rpc_pipefs", "nsfs", "fuse.portal", "fuse.gvfsd-fuse",
    "fuse.lxcfs", "selinuxfs",
))
# fmt: on
_SKIPPED_FOLDERS = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/snap",
    "/var/lib/docker",
    "/var/lib/containers",
)


def memory_bytes() -> int:
    """Return the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cpu_count() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def capacity(state: Path) -> dict[str, str]:
    """Return the capacity of a node: every node of the machine shows all of it."""
    disk = os.statvfs(state)
    return {
        "cpu": str(cpu_count()),
        "memory": f"{memory_bytes() // 1024}Ki",
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
        "pods": str(PODS_MAX),
    }


def node_info(version: str) -> dict[str, str]:
    """Return ``status.nodeInfo``."""
    try:
        machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        machine_id = boot_id = ""
    return {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "bootID": boot_id,
        "containerRuntimeVersion": f"gangline://{version}",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": f"v1.35.0-gangline.{version}",
        "machineID": machine_id,
        "operatingSystem": sys.platform,
        "osImage": f"{platform.system()} with {format_bytes(memory_bytes())}",
        "systemUUID": machine_id,
    }


def host_mounts(hidden: tuple[str, ...]) -> tuple[str, ...]:
    """Return mount points of disks and network file systems besides the root, outermost first."""
    found = []
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    for line in lines:
        fields = line.split(" ")
        path = fields[4].encode().decode("unicode_escape")
        kind = fields[fields.index("-") + 1]
        if path == "/" or kind in _SKIPPED_TYPES or _below(path, _SKIPPED_FOLDERS) or _below(path, hidden):
            continue
        if Path(path).is_dir():
            found.append(path)
    return tuple(sorted(set(found), key=len))


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def hidden_folders(state: Path) -> tuple[str, ...]:
    """Return what pods must not see: the homes of users, and the cluster's own state."""
    homes = {"/root", "/home", str(Path.home())}
    if user := os.environ.get("SUDO_USER"):
        homes.add(str(Path(f"~{user}").expanduser()))
    shown = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[3]))
    own = state.parent
    if any(Path(path).is_relative_to(own) for path in shown) or len(own.parts) < 3:
        own = state
    homes.discard("/")
    outer = sorted({*homes, str(own)}, key=len)
    kept: list[str] = []
    for path in outer:
        if not _below(path, tuple(kept)) and Path(path).is_dir():
            kept.append(path)
    return tuple(kept)


def private_folders(paths: ClusterPaths) -> tuple[str, ...]:
    """Return the folders that no volume may show: the files and sockets of this and other users' clusters.

    They hold tokens, sessions with whole environments, and a socket that asks for no token.
    """
    others = [Path(user.pw_dir, ".local/state/gangline") for user in pwd.getpwall()]
    users = {str(user.pw_uid) for user in pwd.getpwall()}
    sockets = [Path("/tmp", f"gangline-{uid}") for uid in users]
    sockets += [Path("/run/user", uid, "gangline") for uid in users]
    found = {path.resolve() for path in (paths.state, paths.run, *others, *sockets) if _is_reached(path)}
    return tuple(sorted(map(str, found)))


def _is_reached(folder: Path) -> bool:
    """Return whether this user sees a folder there: where it may not enter, its pods see nothing either."""
    try:
        return folder.is_dir()
    except PermissionError:
        return False
