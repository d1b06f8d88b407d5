"""The Linux calls that Python 3.11 lacks, by ctypes. Importing works anywhere; calling needs Linux.

Every function raises ``OSError`` with the call and its path in the message.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Collection

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_RELATIME = 1 << 21
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_LAST = 40
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

IS_LINUX = sys.platform.startswith("linux")
_libc = ctypes.CDLL(None, use_errno=True)

KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 14, 18, 23, 24, 29, 31})
"""What a container of root keeps: Docker's set, and IPC_LOCK, SYS_NICE, SYS_RESOURCE for RDMA and pinning.

Without MKNOD: no device controller stands between a node made in a pod and the machine's disks."""


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by the CLONE_NEW flags."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def show_as_user(uid: int, gid: int) -> None:
    """Enter a user namespace in which this process has the ids that it has outside of all of them.

    For a process that is its user namespace's root; it has no rights left once it executes a program.
    """
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - as the rest here
            file.write(text)


def setns(fd: int, kind: int) -> None:
    """Enter the namespace behind a descriptor of ``/proc/PID/ns/KIND``."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind or remount one."""
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    """Call umount2(2), lazily by default."""
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def bind(source: str, target: str, *, read_only: bool = False, recursive: bool = True) -> None:
    """Bind a path; the flags of the source (nodev, nosuid ...) stay, as an unprivileged namespace demands."""
    mount(source, target, flags=MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        make_read_only(target)


def make_read_only(target: str) -> None:
    """Make a mount read-only, keeping its flags."""
    found = os.statvfs(target).f_flag
    kept = found & (MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048)
    if found & 4096:
        kept |= MS_RELATIME
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def pivot_root(new_root: str, put_old: str) -> None:
    """Exchange the root; the C library does not wrap this call."""
    number = _SYS_PIVOT_ROOT.get(os.uname().machine, 41)
    _check(_libc.syscall(number, new_root.encode(), put_old.encode()), f"pivot_root {new_root}")


def set_hostname(name: str) -> None:
    """Call sethostname(2)."""
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")


def become_subreaper() -> bool:
    """Make orphans of our descendants our children; False where the system knows no such thing."""
    return IS_LINUX and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send a signal to this process when its parent dies (Linux)."""
    if IS_LINUX:
        _libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def set_process_name(name: str) -> None:
    """Set the name that ``ps`` shows, at most 15 bytes."""
    if IS_LINUX:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def forbid_new_privileges() -> None:
    """Let no program that this process executes gain privileges by its owner or its file's capabilities."""
    if IS_LINUX:
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl no_new_privs")


def bound_capabilities(kept: Collection[int]) -> None:
    """Let no program that this process executes have other capabilities than these. Needs CAP_SETPCAP."""
    for capability in range(_PR_CAP_LAST + 1):
        if capability not in kept:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def drop_capabilities(kept: Collection[int]) -> None:
    """Let go of all other capabilities than these."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, held), "capget")
    words = struct.unpack("<6I", held.raw)
    mask = sum(1 << capability for capability in kept) & (words[1] | words[4] << 32)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = struct.pack("<6I", low, low, 0, high, high, 0)
    _check(_libc.capset(header, data), "capset")
