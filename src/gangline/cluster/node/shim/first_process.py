"""The pod's process 1: it adopts what daemonised, reaps it, and its end is the end of the whole pod.

Processes of a pod see and can signal only those of their own pod, so that a script that kills every process
it finds harms nobody else. When the shim is killed the kernel ends this process, and with it the pod.
"""

from __future__ import annotations

import contextlib
import os
import signal

from gangline.cluster.node.shim import syscalls

FOREVER_S = "2147483647"


def start() -> int:
    """Leave for a new process namespace, of which the next child is process 1; return its id, 0 if refused.

    The caller itself stays where it is: its children are the pod's, by the ids of the machine.
    """
    try:
        syscalls.unshare(syscalls.CLONE_NEWPID)
    except OSError:
        return 0
    pid = os.fork()
    if pid:
        return pid
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        _close_inherited()
        syscalls.set_process_name("gl-first")
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Children of one that ignores SIGCHLD are reaped by the kernel: 0.3 MB in place of 4 MB for each pod.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.execv("/bin/sleep", ["sleep", FOREVER_S])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        while True:
            _reap()
            signal.sigwait({signal.SIGCHLD})
    finally:
        os._exit(1)  # never back into the shim's loop


def _close_inherited() -> None:
    """Let go of the shim's sockets: who connects to them must notice when the shim is gone."""
    os.closerange(3, 1024)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
