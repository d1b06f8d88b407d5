"""From a description to a running process: fork, enter the container, exec.

Failures before exec are reported as one JSON line through a pipe that closes on exec.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import stat
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gangline.cluster.node.shim import oci, removed_writes, rootfs, syscalls

EXIT_START_FAILED = 128


def start_container(
    config: dict[str, Any],
    spec: dict[str, Any],
    stdio: Sequence[int],
    report: int,
    first_process: int = 0,
) -> int:
    """Fork a container's main process; return its process id at once.

    ``report`` gets a line ``{"notes": []}`` when the files are in place, ``{"error": ...}`` when something
    fails, and end-of-file when the program has been executed. Where an OCI runtime starts the program, what
    is forked is its helper, which ends with a line ``{"pid": ...}``: that of the program. ``stdio`` is as in
    ``start_inside``.
    """
    if spec.get("oci"):
        with oci.outside(first_process):
            pid = os.fork()
            if not pid:
                _start_by_runtime(config, spec, stdio, report, first_process)
        return pid
    pid = os.fork()
    if pid:
        return pid
    try:
        _plain_signals()
        if len(stdio) == 3:
            _take_stdio(stdio)
        _enter_session(spec)
        for path in spec.get("cgroups", ()):
            Path(path).write_text("0", encoding="ascii")
        if spec["root"] is not None:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            notes = rootfs.enter_root(config, spec)
            os.write(report, json.dumps({"notes": notes}).encode() + b"\n")
        if len(stdio) == 1:
            take_terminal(stdio[0])
        _own_stdio(spec)
        _become_user(spec)
        _change_folder(spec["cwd"], create=spec["root"] is not None)
        _execute(spec["argv"], spec["env"])
    except BaseException as error:  # noqa: BLE001 - the child must never return into the shim's loop
        _give_up(report, error)


def _start_by_runtime(
    config: dict[str, Any], spec: dict[str, Any], stdio: Sequence[int], report: int, first_process: int
) -> NoReturn:
    try:
        _plain_signals()
        if len(stdio) == 3:
            _take_stdio(stdio)
        pid = oci.run(config, spec, first_process, stdio[0] if len(stdio) == 1 else -1)
        os.write(report, json.dumps({"pid": pid}).encode() + b"\n")
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - as above
        _give_up(report, error)


def start_inside(
    spec: dict[str, Any],
    mount_namespace: int | None,
    argv: list[str],
    env: dict[str, str],
    cwd: str,
    stdio: Sequence[int],
    report: int,
) -> int:
    """Fork a further process into a running container (remote shell, exec, probe).

    ``stdio`` are its three streams, or one socket that gets the other side of a new terminal.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        _plain_signals()
        if len(stdio) == 3:
            _take_stdio(stdio)
        _enter_session(spec)
        for path in spec.get("cgroups", ()):
            Path(path).write_text("0", encoding="ascii")
        if mount_namespace is not None:
            syscalls.setns(mount_namespace, syscalls.CLONE_NEWNS)
        if len(stdio) == 1:
            take_terminal(stdio[0])
        _own_stdio(spec)
        _become_user(spec)
        _change_folder(cwd or spec["cwd"], create=False)
        _execute(argv, env)
    except BaseException as error:  # noqa: BLE001 - as above
        _give_up(report, error)


def start_look(pod_folder: str, containers: Sequence[removed_writes.EndedContainer], report: int) -> None:
    """Fork a process that looks for what containers wrote; ``report`` gets it as JSON, then end-of-file."""
    if os.fork():
        return
    try:
        _plain_signals()
        os.write(report, json.dumps(removed_writes.look(pod_folder, containers)).encode())
    finally:
        os._exit(0)


def _plain_signals() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)


def take_terminal(console: int) -> None:
    """Make a terminal of the files that this process sees, take it, and send its other side over a socket."""
    ours, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    with socket.socket(fileno=os.dup(console)) as connection:
        socket.send_fds(connection, [b"0"], [ours])
    os.close(ours)
    _take_stdio((terminal, terminal, terminal))


def _own_stdio(spec: dict[str, Any]) -> None:
    """Let the container's user open its streams again, as ``/dev/stdout``; the machine's devices stay."""
    user = spec.get("user")
    if user is None:
        return
    for descriptor in range(3):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, user["uid"], -1)


def _take_stdio(stdio: Sequence[int]) -> None:
    # First out of the way, for one of them may itself be 0, 1 or 2.
    copies = [os.dup(fd) if fd > 2 else os.dup(os.dup(fd)) for fd in stdio]
    for target, copy in enumerate(copies):
        os.dup2(copy, target)


def _enter_session(spec: dict[str, Any]) -> None:
    """Take the umask, groups, limits, processors and names of ids of the user's shell, as far as allowed."""
    session = spec.get("session")
    if session is None:
        return
    import resource

    os.umask(session["umask"])
    if os.geteuid() == 0 and not session["map_user"]:
        os.setgroups(session["groups"])
    for name, (soft, hard) in session["limits"].items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        try:
            resource.setrlimit(number, (soft, hard))
        except (ValueError, OSError):  # a hard limit that only root may raise
            most = resource.getrlimit(number)[1]
            wanted = soft if soft != resource.RLIM_INFINITY else most
            if most != resource.RLIM_INFINITY:
                wanted = min(wanted, most)
            resource.setrlimit(number, (wanted, most))
    if session["cpus"] and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # a processor that is gone meanwhile
            os.sched_setaffinity(0, session["cpus"])
    if session["map_user"]:
        syscalls.show_as_user(*session["map_user"])


def _become_user(spec: dict[str, Any]) -> None:
    user, kept = spec.get("user"), spec.get("capabilities")
    if kept is not None:
        syscalls.bound_capabilities(kept)
    if user is not None:
        os.setgroups(user["groups"])
        os.setresgid(user["gid"], user["gid"], user["gid"])
        os.setresuid(user["uid"], user["uid"], user["uid"])
    if kept is not None:
        syscalls.drop_capabilities(kept)  # last, for becoming a user takes some
    if spec.get("no_new_privileges"):
        syscalls.forbid_new_privileges()


def _change_folder(path: str, *, create: bool) -> None:
    if create:
        Path(path).mkdir(parents=True, exist_ok=True)
    os.chdir(path)


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError as error:
        if "/" in argv[0]:
            raise OSError(2, f'exec: "{argv[0]}": no such file or directory') from error
        raise OSError(2, f'exec: "{argv[0]}": executable file not found in $PATH') from error
    except OSError as error:
        raise OSError(error.errno, f'exec: "{argv[0]}": {error.strerror}') from error


def _give_up(report: int, error: BaseException) -> NoReturn:
    text = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{text}: {error.filename}"
    try:
        os.write(report, json.dumps({"error": text}).encode() + b"\n")
    finally:
        os._exit(EXIT_START_FAILED)
