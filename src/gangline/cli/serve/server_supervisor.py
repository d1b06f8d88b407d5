"""Keeps the server alive beside the node agent: starts it again when it was killed.

A process of its own, forked by the agent before it enters its namespaces: a server that was started from
inside a user namespace would be another user's. It ends with the agent. A server that ends in order leaves
its lock empty and is left alone; a command that starts or stops the cluster holds the start lock meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from gangline import clock
from gangline.cluster.daemon.daemon import spawn_daemon
from gangline.cluster.daemon.restarts import RestartDelay, note_restart
from gangline.cluster.node.shim.syscalls import die_with_parent, set_process_name
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import LockState, ProcessLock, read_lock

POLL_S = 0.5
"""How often the lock is looked at while no server holds it, and where the kernel tells of no end."""
TAKE_LOCK_S = 20.0
"""How long a started server may take until it holds its lock."""


def fork_server_supervisor(paths: ClusterPaths, lock: ProcessLock) -> int:
    """Start the supervisor; return its process id. The process must have one thread, and no event loop."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent(signal.SIGKILL)
        lock.abandon()  # the agent's, which must be free when the agent is killed
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        set_process_name("gl-supervisor")
        _supervise(paths, parent)
    finally:
        os._exit(1)  # never back into the agent


def _supervise(paths: ClusterPaths, parent: int) -> None:
    delay = RestartDelay()
    began_s = time.monotonic()
    while os.getppid() == parent:
        found = read_lock(paths.lock("server"))
        if found.state == "held" and found.pid:
            _wait_end(found.pid)
            time.sleep(0.01)  # the lock goes an instant after the process
        elif found.state == "killed":
            time.sleep(delay.after(time.monotonic() - began_s))
            began_s = time.monotonic()
            _restart(paths, found)
        else:
            time.sleep(POLL_S)


def _restart(paths: ClusterPaths, found: LockState) -> None:
    """Start the server unless a command is about to do that, or something else, with the cluster."""
    with ProcessLock(paths.lock("start")) as start:
        if not start.acquire() or read_lock(paths.lock("server")) != found:
            return
        why = "was killed"
        print(
            f'timestamp={clock.format_time(clock.now())} level=warning event="server {why}; started again" '
            f"pid={found.pid}",
            file=sys.stderr,
            flush=True,
        )
        note_restart(paths, "server", found.pid, why)
        server = spawn_daemon(paths, "server", ["serve-cluster", "--cluster", paths.name])
        deadline = time.monotonic() + TAKE_LOCK_S
        while time.monotonic() < deadline and server.poll() is None:
            if read_lock(paths.lock("server")).state == "held":
                return
            time.sleep(0.01)


def _wait_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        time.sleep(POLL_S)
        return
    try:
        select.select([descriptor], [], [])
    finally:
        os.close(descriptor)
    try:
        os.waitpid(pid, os.WNOHANG)  # it may have been started here
    except ChildProcessError:
        return
