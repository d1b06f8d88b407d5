"""The containers of one pod: from start to the last line of the log, one attempt of each at a time."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gangline.cluster.node.shim import oci, processes, spawn
from gangline.cluster.node.shim.attached import Attached
from gangline.cluster.node.shim.logfile import LogFile
from gangline.cluster.node.shim.removed_writes import EndedContainer

_READ_BYTES = 64 * 1024
_DRAIN_S = 0.5
"""How long the log of an ended container stays open for processes that hold its pipes."""


@dataclass
class Running:
    """One attempt of one container, from start to end.

    ``state`` goes from starting to running, ending (the main process has ended, its log is drained), exited.
    """

    spec: dict[str, Any]
    pid: int
    log: LogFile
    report: int
    pipes: dict[int, bytes]
    state: str = "starting"
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    notes: list[str] = field(default_factory=list)
    mount_namespace: int | None = None
    kill_at: float | None = None
    waits_for_ranks: bool = False
    drained_by: float | None = None
    report_text: bytes = b""
    stdin: int = -1
    console: socket.socket | None = None
    attached: list[Attached] = field(default_factory=list)
    is_held: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what the agent is told."""
        return {
            "name": self.spec["name"],
            "attempt": self.spec["attempt"],
            "state": "running" if self.state == "ending" else self.state,
            "pid": self.pid,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "reason": self.reason,
            "message": self.message,
            "notes": self.notes,
        }


class Containers:
    """See the module's text.

    Args:
        config: of the pod.
        selector: of the shim's loop; its data are functions to call.
        changed: told after every change of a state.
        record: writes ``describe`` down for good, called before a program starts; what it raises prevents it.
        others: returns processes that run inside a container besides its own (process id -> container).
    """

    def __init__(
        self,
        config: dict[str, Any],
        selector: selectors.BaseSelector,
        changed: Callable[[], None],
        record: Callable[[], object],
        others: Callable[[], dict[int, str]],
    ) -> None:
        self._config = config
        self._selector = selector
        self._changed = changed
        self._record = record
        self._others = others
        self._before: dict[str, dict[str, Any]] = {one["name"]: one for one in config.get("ended", [])}
        self._known: dict[str, Running] = {}
        self.first_process = 0
        self._early_ends: dict[int, int] = {}

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return every container's last attempt by name, those that a killed shim before this one saw too."""
        return self._before | {name: container.describe() for name, container in self._known.items()}

    def find_running(self, name: str) -> Running | None:
        """Return the container of that name if it runs; of any name if it is empty."""
        for container in self._known.values():
            if container.state == "running" and name in ("", container.spec["name"]):
                return container
        return None

    def ended_among(self, names: list[str]) -> list[EndedContainer]:
        """Return what there is to look through of containers that have ended; all for an empty list."""
        return [
            EndedContainer(name, one.spec["root"], one.mount_namespace)
            for name, one in self._known.items()
            if one.state == "exited" and (name in names or not names)
        ]

    def start(self, spec: dict[str, Any]) -> None:
        """Start an attempt; its state changes when the program has been executed.

        That it starts is on the disk before it does: who finds that record and nobody who watches over the
        program must not start it again.

        Raises:
            ValueError: the attempt before it has not ended.
            OSError: it cannot be recorded, or forked; it was not started.
        """
        name = spec["name"]
        before = self._known.get(name)
        if before is not None and before.state != "exited":
            raise ValueError(f"container {name} runs already")
        if before is not None and before.mount_namespace is not None:
            os.close(before.mount_namespace)
            before.mount_namespace = None
        report_read, report_write = os.pipe()
        container = Running(spec, 0, LogFile(spec["log"]), report_read, {})
        stdio = _make_streams(container)
        self._known[name] = container
        try:
            self._record()
            container.pid = spawn.start_container(self._config, spec, stdio, report_write, self.first_process)
        except OSError:
            self._known.pop(name)
            if before is not None:
                self._known[name] = before
            for descriptor in (*container.pipes, report_read):
                os.close(descriptor)
            container.log.close()
            _close_input(container)
            raise
        finally:
            for descriptor in (*stdio, report_write):
                os.close(descriptor)
        for descriptor in container.pipes:
            self._watch(container, descriptor)
        self._selector.register(report_read, selectors.EVENT_READ, lambda: self._read_report(container))

    def stop(self, name: str, grace_s: float) -> None:
        """Send SIGTERM to the main process, and SIGKILL to all of the container after the grace period.

        Ranks that an MPI launcher of another pod has started here are no children of the main process, which
        only keeps the container open: they are told first, and it when they have ended.
        """
        container = self._known.get(name)
        if container is None or container.state not in ("starting", "running"):
            return
        kill_at = time.monotonic() + grace_s
        container.kill_at = kill_at if container.kill_at is None else min(container.kill_at, kill_at)
        if grace_s > 0:
            ranks = processes.topmost_ranks(self._runs_of(name))
            processes.kill_all(ranks or [container.pid], signal.SIGTERM)
            container.waits_for_ranks = bool(ranks)

    def run_ended(self) -> None:
        """Take the end of a process that ran inside a container besides its own."""
        for name, container in self._known.items():
            if container.waits_for_ranks and not self._runs_of(name):
                container.waits_for_ranks = False
                processes.kill_all([container.pid], signal.SIGTERM)

    def _runs_of(self, name: str) -> list[int]:
        return [pid for pid, owner in self._others().items() if owner == name]

    def ended(self, pid: int, code: int) -> None:
        """Take the end of a main process (others are passed over); ``code`` is negative for a signal."""
        found = (c for c in self._known.values() if c.pid == pid and c.state in ("starting", "running"))
        container = next(found, None)
        if container is None:
            if any(c.state == "starting" for c in self._known.values()):
                self._early_ends[pid] = code  # perhaps of a program whose helper has not reported it yet
            return
        while container.report >= 0:
            self._read_report(container)
        if container.pid != pid:
            return  # the helper has ended, not the program that it started
        container.finished_at = time.time()
        container.exit_code = code if code >= 0 else 128 - code
        container.signal = -code if code < 0 else 0
        container.state = "ending"
        container.kill_at = None
        container.drained_by = time.monotonic() + _DRAIN_S
        processes.kill_all(self._left_behind(container))
        processes.kill_groups([container.pid])
        for descriptor in list(container.pipes):
            self._pump(container, descriptor)
        if container.state == "ending" and not container.pipes:
            self._finish(container)  # the pipes had ended before the process was reaped

    def main_processes(self) -> list[int]:
        """Return the main processes that have not ended."""
        return [c.pid for c in self._known.values() if c.state in ("starting", "running")]

    def finish_all(self) -> None:
        """Close the logs of containers whose processes have all ended."""
        for container in self._known.values():
            if container.state == "ending":
                self._finish(container)

    def timeout_s(self) -> float | None:
        """Return when ``check_deadlines`` is due, None when nothing is."""
        moments = [
            moment
            for c in self._known.values()
            for moment in (
                c.kill_at,
                c.drained_by if c.state == "ending" else None,
                c.log.due_s() if c.state != "exited" else None,
                *(one.gives_up_at for one in c.attached if one.is_behind),
            )
            if moment is not None
        ]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def check_deadlines(self) -> None:
        """Kill what has outlived its grace period; stop waiting for logs that do not end."""
        now = time.monotonic()
        for container in self._known.values():
            if container.state != "exited":
                container.log.write_unfinished(now)
            for attached in list(container.attached):
                if attached.is_behind and now >= attached.gives_up_at:
                    attached.drop()
            if container.kill_at is not None and now >= container.kill_at:
                container.kill_at = None
                processes.kill_groups([container.pid])
                processes.kill_all([container.pid, *processes.descendants(container.pid)])
            is_draining = container.state == "ending" and container.drained_by is not None
            if is_draining and container.drained_by is not None and now >= container.drained_by:
                self._finish(container)

    # Streams

    def attach(
        self, name: str, outputs: dict[bytes, int], told: Callable[[], object]
    ) -> tuple[Running, Attached]:
        """Have somebody watch a container's output from now on; ``told`` is called when it has ended.

        Raises:
            LookupError: no container of that name runs.
        """
        container = self.find_running(name)
        if container is None:
            raise LookupError(name)
        attached = Attached(self._selector, outputs, told, lambda: self._go_on(container))
        container.attached.append(attached)
        return container, attached

    def end_input(self, container: Running) -> None:
        """Take the end of what one who was attached had to say: that of an input had once."""
        if container.spec.get("stdin_once"):
            _close_input(container)

    def _watch(self, container: Running, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._pump(container, descriptor))

    def _pump(self, container: Running, descriptor: int) -> None:
        if descriptor not in container.pipes or container.is_held:
            return  # closed, or put off, earlier in this turn of the loop
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            chunk = b""
        if chunk:
            self._put(container, container.pipes[descriptor], chunk)
            if not container.is_held and any(one.is_behind for one in container.attached):
                container.is_held = True
                for pipe in container.pipes:
                    self._selector.unregister(pipe)
            return
        self._close_pipe(container, descriptor)
        if container.state == "ending" and not container.pipes:
            self._finish(container)

    def _put(self, container: Running, stream: bytes, chunk: bytes) -> None:
        container.log.write(stream, chunk)
        for attached in list(container.attached):
            attached.give(stream, chunk)
        container.attached = [one for one in container.attached if not one.is_over]

    def _go_on(self, container: Running) -> None:
        """Read the container's output again when nobody is behind any more."""
        if container.is_held and not any(one.is_behind for one in container.attached):
            container.is_held = False
            for descriptor in container.pipes:
                self._watch(container, descriptor)

    def _close_pipe(self, container: Running, descriptor: int) -> None:
        if not container.is_held:
            self._selector.unregister(descriptor)
        os.close(descriptor)
        container.log.finish(container.pipes.pop(descriptor))

    def _read_report(self, container: Running) -> None:
        if container.report < 0:
            return
        chunk = os.read(container.report, _READ_BYTES)
        container.report_text += chunk
        if chunk:
            return
        self._selector.unregister(container.report)
        os.close(container.report)
        container.report = -1
        for line in container.report_text.splitlines():
            item = json.loads(line)
            container.notes += item.get("notes", [])
            container.pid = item.get("pid", container.pid)
            if "error" in item:
                container.reason, container.message = "StartError", item["error"]
        self._take_terminal(container)
        container.started_at = time.time()
        container.state = "running"
        if container.reason:
            return
        if container.spec.get("oci"):
            container.spec["cgroups"] = oci.control_groups(container.pid)
        if container.spec["root"] is not None:
            try:
                container.mount_namespace = os.open(f"/proc/{container.pid}/ns/mnt", os.O_RDONLY)
            except OSError:
                container.mount_namespace = None  # it has ended already
        self._changed()
        early, self._early_ends = self._early_ends, {}
        if container.pid in early:
            self.ended(container.pid, early[container.pid])

    def _take_terminal(self, container: Running) -> None:
        """Take the other side of the container's terminal, which was sent before its program was executed."""
        if container.console is None:
            return
        with container.console as console:
            container.console = None
            try:
                _, descriptors, _, _ = socket.recv_fds(console, 1, 1, socket.MSG_DONTWAIT)
            except OSError:
                return  # it failed before
        for descriptor in descriptors[:1]:
            container.pipes[descriptor] = b"stdout"
            container.stdin = os.dup(descriptor)
            self._watch(container, descriptor)

    def _left_behind(self, container: Running) -> list[int]:
        """Return the processes that a container leaves when its main process has ended."""
        name = container.spec["name"]
        beside = [c for c in self._known.values() if c is not container and c.state != "exited"]
        foreign = [pid for pid, owner in self._others().items() if owner != name]
        below = processes.descendants(os.getpid(), without=[*(c.pid for c in beside), *foreign])
        found = [pid for pid in below if pid != self.first_process]
        if not beside:
            return found
        return [pid for pid in found if processes.environment_of(pid).get(processes.CONTAINER_MARKER) == name]

    def _finish(self, container: Running) -> None:
        for descriptor in list(container.pipes):
            try:
                while chunk := os.read(descriptor, _READ_BYTES):
                    self._put(container, container.pipes[descriptor], chunk)
            except OSError:  # there is no more, or it was a terminal
                pass
            self._close_pipe(container, descriptor)
        container.log.close()
        _close_input(container)
        for attached in list(container.attached):
            attached.end()
        container.state = "exited"
        self._changed()


def _make_streams(container: Running) -> list[int]:
    """Make a container's streams; return what its program gets: three, or the socket for its terminal."""
    if container.spec.get("tty"):
        container.console, theirs = socket.socketpair()
        return [theirs.detach()]
    if container.spec.get("stdin"):
        stdin, container.stdin = os.pipe()
        os.set_blocking(container.stdin, False)
    else:
        stdin = os.open(os.devnull, os.O_RDONLY)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    container.pipes |= {out_read: b"stdout", err_read: b"stderr"}
    return [stdin, out_write, err_write]


def _close_input(container: Running) -> None:
    if container.stdin >= 0:
        os.close(container.stdin)
        container.stdin = -1
