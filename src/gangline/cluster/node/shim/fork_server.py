"""The process that forks shims: its interpreter and imports are paid once, and its pages are shared.

It is told on standard input (a Unix socket) with one JSON line and one descriptor for each pod: the shim's
first control connection. A line ``{"sweep": UID}`` asks it to kill what a killed shim has left. When the
agent ends the fork server ends; the shims stay. When the agent is killed the fork server waits for the end
of its shims, for what a killed shim leaves is known to nobody else.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

from gangline.cluster.node.shim import processes, syscalls
from gangline.cluster.node.shim.server import Shim

_MESSAGE_LIMIT_BYTES = 256 * 1024
OUTLIVE_LOOK_S = 1.0


def main() -> None:
    """Serve until the agent closes its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by nobody in particular
    syscalls.become_subreaper()  # what a killed shim leaves comes here, marked or not
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    syscalls.set_process_name("gl-fork-server")
    os.chdir("/")
    requests = socket.socket(fileno=os.dup(0))
    buffer = b""
    waiting: list[int] = []
    forked: set[int] = set()
    gc.collect()
    gc.freeze()
    while True:
        chunk, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_LIMIT_BYTES, 8)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # else a container holds its shim's connection open
        waiting += descriptors
        if not chunk:
            _outlive_shims(forked)
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "end" in request:
                return
            if "sweep" in request:
                _sweep(request["sweep"], forked)
                continue
            connection = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                requests.close()
                _become_shim(request, connection)
            forked.add(pid)
            os.close(connection)


def _outlive_shims(forked: set[int]) -> None:
    while processes.children(os.getpid()):
        _sweep("", forked)
        time.sleep(OUTLIVE_LOOK_S)


def _sweep(pod_uid: str, forked: set[int]) -> None:
    """Kill what killed shims left to this process; a child kills what carries the marker of a named pod."""
    below = processes.children(os.getpid())
    forked.intersection_update(below)
    for orphan in set(below) - forked:
        processes.kill_all([orphan, *processes.descendants(orphan)])
    pid = os.fork() if pod_uid else -1
    if pid:
        forked.add(pid)
        return
    try:
        processes.sweep(pod_uid)
    finally:
        os._exit(0)


def _become_shim(config: dict[str, Any], connection: int) -> NoReturn:
    status = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        Shim(config, socket.socket(fileno=connection)).run()
        status = 0
    except BaseException:  # noqa: BLE001 - written to the agent's log, then the process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
