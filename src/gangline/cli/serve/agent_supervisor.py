"""Keeps one node agent alive beside the server: starts it, adopts one that lives, restarts one that died."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time

import structlog

from gangline.cluster.daemon.agent_refusal import forget_refusal
from gangline.cluster.daemon.daemon import spawn_daemon
from gangline.cluster.daemon.restarts import RestartDelay, note_restart
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.process_lock import read_lock

STOP_TIMEOUT_S = 10.0
_POLL_S = 0.5
"""How often a process is looked at where the kernel cannot tell of its end (no pidfd)."""


class AgentSupervisor:
    """Owns the life of the agent process; its pods outlive both."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._stopping = False

    def start(self) -> None:
        """Start the agent unless one lives; returns at once."""
        forget_refusal(self._paths)
        held = read_lock(self._paths.lock("agent"))
        if held.state == "held" and held.pid:
            self._pid, self._child = held.pid, None
            return
        if held.state == "killed":
            note_restart(self._paths, "agent", held.pid, "was killed")
        self._child = spawn_daemon(self._paths, "agent", ["serve-agent", "--cluster", self._paths.name])
        self._pid = self._child.pid

    async def run(self) -> None:
        """Restart the agent whenever it ends; endless. Waits longer after each quick end."""
        delay = RestartDelay()
        while True:
            started = time.monotonic()
            await self._wait_end()
            if self._stopping:
                return
            await asyncio.sleep(delay.after(time.monotonic() - started))
            structlog.get_logger().warning("the node agent has ended; started again", pid=self._pid)
            self.start()

    async def stop(self) -> None:
        """End the agent in order; after 10 s by force."""
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self._pid, number)
            except (ProcessLookupError, PermissionError):
                return
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._wait_end()
                return
            except TimeoutError:
                continue

    async def _wait_end(self) -> None:
        """Wait until the agent's process is gone, and reap it if it is ours."""
        if self._child is not None and self._child.poll() is not None:
            return
        try:
            descriptor = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            await self._poll_end()
        else:
            await _wait_readable(descriptor)
        if self._child is not None:
            self._child.poll()

    async def _poll_end(self) -> None:
        while read_lock(self._paths.lock("agent")).state == "held":
            await asyncio.sleep(_POLL_S)


async def _wait_readable(descriptor: int) -> None:
    """Wait until a pidfd says that its process ended; the descriptor is closed."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
