"""How pods are kept apart: ``network``, ``user`` or ``plain``, chosen once at start by trying it.

===========  =====================================================================  ======================
mode         a pod is                                                               needs
===========  =====================================================================  ======================
network      network, mount, UTS and IPC namespaces, an address on a bridge         root
user         mount, UTS and IPC namespaces inside one user namespace of the agent   user namespaces
plain        processes with a folder and an environment of their own                nothing (also macOS)
===========  =====================================================================  ======================
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import Literal

from gangline.cluster.node.shim import processes, syscalls
from gangline.errors import ClusterError, UserError

Isolation = Literal["network", "user", "plain"]
MODES: tuple[Isolation, ...] = ("network", "user", "plain")


def choose_isolation(wanted: str) -> tuple[Isolation, str]:
    """Return the mode and why it was chosen; ``auto`` or an empty text takes the first that works.

    Raises:
        UserError: the wanted mode is unknown or does not work here.
    """
    if wanted and wanted not in (*MODES, "auto"):
        raise UserError(f"`{wanted}` is no isolation", hint=f"write one of {', '.join(MODES)}, auto")
    reasons: list[str] = []
    for mode in MODES:
        if wanted in (mode, "auto", ""):
            refusal = refusal_of(mode)
            if not refusal:
                reason = "asked for" if wanted == mode else "; ".join(reasons) or "available"
                return mode, reason
            reasons.append(f"no {mode} isolation: {refusal}")
    raise UserError(
        f"isolation `{wanted}` does not work here: {'; '.join(reasons)}",
        hint="leave `--isolation` out to take what this machine allows",
    )


def refusal_of(mode: Isolation) -> str:
    """Try a mode in a process of its own; return why it does not work, empty when it does. Takes 3 ms."""
    if mode == "plain":
        return ""
    if not syscalls.IS_LINUX:
        return f"{sys.platform} has no namespaces"
    if mode == "network" and os.geteuid() != 0:
        return "needs root"
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = b""
        try:
            _try_namespaces(mode)
        except OSError as error:
            text = str(error.strerror or error).encode()
        finally:
            os.write(writer, text)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text.decode()


def _try_namespaces(mode: Isolation) -> None:
    if mode == "user":
        _unshare_user()
        flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC
    else:
        flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET
    syscalls.unshare(flags)
    syscalls.mount("none", "/", flags=syscalls.MS_SLAVE | syscalls.MS_REC)
    with tempfile.TemporaryDirectory() as folder:
        syscalls.mount("tmpfs", folder, "tmpfs")
        probe = Path(folder, "null")
        probe.touch()
        syscalls.bind("/dev/null", str(probe))
        # Debian's and Ubuntu's restrictions show only when something is used. Opened without O_CREAT: in a
        # sticky folder newer kernels refuse that for a device of another owner.
        os.close(os.open(probe, os.O_WRONLY))
        syscalls.unmount(folder)


def _unshare_user() -> None:
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")


def enter_user_namespace(running_shims: list[Path]) -> None:
    """Move this process into the user namespace of its pods, as its root, with mounts of its own.

    Pods of an agent before this one live in that agent's namespace: it is joined, for from a sibling they
    could not be seen nor ended. Must be called while the process has a single thread.

    Raises:
        ClusterError: the kernel refuses.
    """
    try:
        for path in running_shims:
            if pid := peer_of(path):
                try:
                    descriptor = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
                    syscalls.setns(descriptor, syscalls.CLONE_NEWUSER)
                    os.close(descriptor)
                    break
                except OSError:
                    continue
        else:
            _unshare_user()
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", flags=syscalls.MS_SLAVE | syscalls.MS_REC)
    except OSError as error:
        raise ClusterError(
            f"cannot enter a user namespace: {error}", hint="try `--isolation plain`"
        ) from error


def end_orphans(cluster_id: str, run: Path) -> int:
    """Kill processes of pods whose shim was killed; return how many pods had some.

    For user mode, before the namespace is entered: from inside, processes of another cannot be recognised.
    """
    orphaned = set()
    for pid in processes.marked(processes.CLUSTER_MARKER, cluster_id):
        uid = processes.environment_of(pid).get(processes.POD_MARKER, "")
        if uid and not peer_of(run / f"{uid}.sock"):
            orphaned.add(uid)
    for uid in orphaned:
        processes.sweep(uid)
    return len(orphaned)


def peer_of(path: Path) -> int:
    """Return the process that listens on a Unix socket, 0 when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return 0
        return int(struct.unpack("3i", raw)[0])
