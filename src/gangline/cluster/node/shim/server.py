"""One pod's shim: starts and stops its containers, writes their logs, remembers how they ended.

Protocol: JSON lines over Unix sockets. The *control* socket belongs to the node agent:

==========  =======================================================  ==================================
op          fields                                                   answer
==========  =======================================================  ==================================
configure   network {interface, address, prefix, gateway} or null    {id, ok}
start       container (see ``spawn``)                                {id, ok}, then a state event
stop        name, grace_s                                            {id, ok}, then a state event
exec        name, argv, env, cwd; three descriptors, or tty and the  {id, pid} or {id, error}, {id, exit}
            socket that the terminal goes to
attach      name, stdin; two descriptors for the output              {id, tty} and a descriptor of the
                                                                     input if it has any, {id, exit}
end_input   (none): who is attached has nothing more to say          (none)
socket      (none)                                                   {id, ok} with a socket of the network
writes      containers (names, none for all)                         {id, folders, is_cut}
state       (none)                                                   a state event
end         (none)                                                   {id, ok}; every process has ended
==========  =======================================================  ==================================

State events go on each change to every control connection that runs nothing: ``{"event": "state",
"containers": {name: ...}}``; the same object is in ``state.json`` of the pod's folder, on the disk before a
program starts and before its end is told. ``configured`` says whether the pod has its network. The *remote
shell* socket takes ``exec`` only, for the first container that runs; when its connection closes, the
command's processes are killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.cluster.node.shim import first_process, network_interface, processes, rootfs, spawn, syscalls
from gangline.cluster.node.shim.containers import Containers
from gangline.cluster.node.shim.control_channel import ControlChannel, ExecProcess
from gangline.cluster.node.shim.durable import write_durably

_READ_BYTES = 64 * 1024
_END_S = 5.0
_FORSAKEN_CHECK_S = 1.0
_NAMESPACES = {
    "net": syscalls.CLONE_NEWNET,
    "uts": syscalls.CLONE_NEWUTS,
    "ipc": syscalls.CLONE_NEWIPC,
    "mount": syscalls.CLONE_NEWNS,
}


class Shim:
    """See the module's text. Single-threaded; nothing here blocks for long."""

    def __init__(self, config: dict[str, Any], connection: socket.socket) -> None:
        self._config = config
        self._selector = selectors.DefaultSelector()
        self._runs: dict[int, ExecProcess] = {}
        self._containers = Containers(
            config, self._selector, self._changed, self._save_durably, self._run_owners
        )
        self._is_configured = False
        self._channels: list[ControlChannel] = []
        self._ending = self._asked_to_end = False
        self._first = connection

    def run(self) -> None:
        """Serve until told to end."""
        syscalls.set_process_name("gl-shim")
        syscalls.become_subreaper()
        self._watch_signals()
        self._lock = self._take_lock()
        if self._lock < 0:
            message = {"event": "failed", "error": "another process watches over this pod"}
            self._first.sendall(json.dumps(message).encode() + b"\n")
            return
        listeners = [self._listen(self._config["control"], True), self._listen(self._config["rsh"], False)]
        first = self._add_channel(self._first, control=True)
        try:
            self._enter_namespaces()
            self._save_durably()
        except OSError as error:
            self._send(first, {"event": "failed", "error": str(error)})
            self._remove_sockets()
            return
        self._send(first, {"event": "created", "pid": os.getpid()})
        while not self._ending:
            for key, _ in self._selector.select(self._timeout_s()):
                key.data()
            self._containers.check_deadlines()
            if self._asked_to_end or self._is_forsaken():
                self._end()
        for listener in listeners:
            listener.close()

    # Set-up

    def _watch_signals(self) -> None:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._wakeup = (reader, writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._ask_to_end())
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._reap(drain=reader))

    def _take_lock(self) -> int:
        """Return the descriptor of the lock that one shim of a pod holds while it lives, -1 when one does.

        A killed agent may have asked for a shim that starts only after the next agent has asked for its own.
        """
        path = Path(self._config["folder"]) / "shim.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return -1
        return descriptor

    def _listen(self, path: str, control: bool) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(path).unlink(missing_ok=True)
        listener.bind(path)
        # Who may reach the remote shell is decided by the folder: only pods of the namespace see it.
        Path(path).chmod(0o600 if control else 0o666)
        listener.listen(64)
        listener.setblocking(False)

        def accept() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._add_channel(connection, control=control)

        self._selector.register(listener, selectors.EVENT_READ, accept)
        return listener

    def _add_channel(self, connection: socket.socket, *, control: bool) -> ControlChannel:
        connection.setblocking(False)
        channel = ControlChannel(connection, control, is_agents=control)
        self._channels.append(channel)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(channel))
        return channel

    def _enter_namespaces(self) -> None:
        wanted = self._config["namespaces"]
        if not wanted:
            return
        syscalls.unshare(sum(_NAMESPACES[name] for name in wanted))
        if "uts" in wanted:
            syscalls.set_hostname(self._config["hostname"])
        if "net" in wanted:
            network_interface.bring_up_loopback()
        elif path := self._config.get("network"):  # of its node
            with Path(path).open("rb") as namespace:
                syscalls.setns(namespace.fileno(), syscalls.CLONE_NEWNET)
        for name, value in self._config.get("sysctls", {}).items():
            Path("/proc/sys", name.replace(".", "/")).write_text(value, encoding="ascii")
        if self._config.get("binds") is not None:
            rootfs.show_files(self._config["binds"])
        elif "mount" in wanted:
            rootfs.prepare_pod(self._config)
            self._containers.first_process = first_process.start()

    # Messages

    def _receive(self, channel: ControlChannel) -> None:
        try:
            chunk, descriptors, _, _ = socket.recv_fds(channel.socket, _READ_BYTES, 16)
        except BlockingIOError:
            return
        except OSError:
            chunk, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        channel.descriptors += descriptors
        if not chunk:
            self._drop_channel(channel)
            return
        *lines, channel.buffer = (channel.buffer + chunk).split(b"\n")
        for line in lines:
            self._handle(channel, line)

    def _handle(self, channel: ControlChannel, line: bytes) -> None:
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            operation = request["op"]
            operations: dict[str, Callable[[ControlChannel, dict[str, Any]], None]] = {"exec": self._op_exec}
            if channel.control:
                operations |= {
                    "configure": self._op_configure,
                    "start": self._op_start,
                    "stop": self._op_stop,
                    "writes": self._op_writes,
                    "attach": self._op_attach,
                    "end_input": self._op_end_input,
                    "socket": self._op_socket,
                    "state": self._op_state,
                    "end": self._op_end,
                }
            operations[operation](channel, request)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._send(channel, {"id": request.get("id"), "error": f"{type(error).__name__}: {error}"})

    def _send(self, channel: ControlChannel, message: dict[str, Any]) -> None:
        try:
            channel.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._drop_channel(channel)  # a reader that does not read; the agent connects again

    def _drop_channel(self, channel: ControlChannel) -> None:
        if channel not in self._channels:
            return
        self._channels.remove(channel)
        self._selector.unregister(channel.socket)
        channel.socket.close()
        for descriptor in channel.descriptors:
            os.close(descriptor)
        if channel.attached is not None:
            container, attached = channel.attached
            if channel.has_input:
                self._containers.end_input(container)
            attached.drop()
        for pid in channel.runs:
            processes.kill_all([*processes.descendants(pid), pid])

    def _op_configure(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        network = request["network"]
        if network is not None:
            network_interface.configure_interface(
                network["interface"], network["address"], network["prefix"], network["gateway"]
            )
        self._is_configured = True
        self._send(channel, {"id": request["id"], "ok": True})

    def _op_state(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        self._send(channel, self._state() | {"id": request["id"]})

    def _op_socket(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        """Give a TCP socket of the pod's network, not connected: it stays there whoever uses it."""
        channel.is_agents = False
        with socket.socket() as made:
            answer = json.dumps({"id": request["id"], "ok": True}).encode() + b"\n"
            socket.send_fds(channel.socket, [answer], [made.fileno()])

    def _op_attach(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        """Show a container's output from now on, and give its input, until it ends or the channel closes."""
        given, channel.descriptors = channel.descriptors[:2], channel.descriptors[2:]
        channel.is_agents = False

        def told() -> None:
            self._send(channel, {"id": request["id"], "exit": 0})

        try:
            outputs = dict(zip((b"stdout", b"stderr"), given, strict=True))
            container, attached = self._containers.attach(request["name"], outputs, told)
        except (LookupError, ValueError):
            for descriptor in given:
                os.close(descriptor)
            self._send(channel, {"id": request["id"], "error": "no container runs", "retry": True})
            return
        channel.attached, channel.has_input = (container, attached), bool(request.get("stdin"))
        answer = {"id": request["id"], "tty": bool(container.spec.get("tty"))}
        stdin = [container.stdin] if container.stdin >= 0 else []
        socket.send_fds(channel.socket, [json.dumps(answer).encode() + b"\n"], stdin)

    def _op_end_input(self, channel: ControlChannel, _: dict[str, Any]) -> None:
        if channel.attached is not None and channel.has_input:
            self._containers.end_input(channel.attached[0])

    def _op_writes(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        """Tell what ended containers wrote that goes with them, from a process that looks for it."""
        reader, writer = os.pipe()
        text = b""

        def read() -> None:
            nonlocal text
            chunk = os.read(reader, _READ_BYTES)
            text += chunk
            if not chunk:
                self._selector.unregister(reader)
                os.close(reader)
                self._send(channel, {"id": request["id"]} | json.loads(text or b"{}"))

        ended = self._containers.ended_among(request["containers"])
        spawn.start_look(self._config["folder"], ended, writer)
        os.close(writer)
        self._selector.register(reader, selectors.EVENT_READ, read)

    def _op_start(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        self._containers.start(request["container"])
        self._send(channel, {"id": request["id"], "ok": True})

    def _op_stop(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        self._containers.stop(request["name"], request["grace_s"])
        self._send(channel, {"id": request["id"], "ok": True})

    def _op_exec(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        count = 1 if request.get("tty") else 3
        stdio, channel.descriptors = channel.descriptors[:count], channel.descriptors[count:]
        channel.is_agents = False
        try:
            container = self._containers.find_running(request.get("name", ""))
            if container is None:
                self._send(channel, {"id": request.get("id"), "error": "no container runs", "retry": True})
                return
            if len(stdio) != count:
                raise ValueError("exec needs three descriptors, or one for a terminal")
            report_read, report_write = os.pipe()
            env = container.spec["env"] | request.get("env", {})
            inside = container.mount_namespace
            pid = spawn.start_inside(
                container.spec,
                inside,
                request["argv"],
                env,
                request.get("cwd", ""),
                stdio,
                report_write,
            )
            os.close(report_write)
        finally:
            for descriptor in stdio:
                os.close(descriptor)
        channel.runs.add(pid)
        self._runs[pid] = ExecProcess(channel, request.get("id"), container.spec["name"])
        self._selector.register(
            report_read,
            selectors.EVENT_READ,
            lambda: self._report_run(channel, request.get("id"), pid, report_read),
        )

    def _report_run(self, channel: ControlChannel, request_id: Any, pid: int, report: int) -> None:
        text = os.read(report, _READ_BYTES)
        self._selector.unregister(report)
        os.close(report)
        answer: dict[str, Any] = {"pid": pid}
        if text:
            answer["error"] = json.loads(text.split(b"\n", 1)[0])["error"]
        if channel in self._channels:
            self._send(channel, {"id": request_id} | answer)

    def _op_end(self, channel: ControlChannel, request: dict[str, Any]) -> None:
        self._end()
        self._send(channel, {"id": request["id"], "ok": True})

    # Processes

    def _ask_to_end(self) -> None:
        self._asked_to_end = True

    def _timeout_s(self) -> float | None:
        timeout_s = self._containers.timeout_s()
        if any(channel.is_agents for channel in self._channels):
            return timeout_s
        return _FORSAKEN_CHECK_S if timeout_s is None else min(timeout_s, _FORSAKEN_CHECK_S)

    def _is_forsaken(self) -> bool:
        """Return whether no agent is connected and the pod's folder is gone: no agent will ever come back."""
        if any(channel.is_agents for channel in self._channels):
            return False
        return not Path(self._config["folder"]).is_dir()

    def _run_owners(self) -> dict[int, str]:
        return {pid: run.container for pid, run in self._runs.items()}

    def _reap(self, drain: socket.socket) -> None:
        try:
            while drain.recv(4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in self._runs:
                self._run_ended(pid, code)
            else:
                self._containers.ended(pid, code)

    def _run_ended(self, pid: int, code: int) -> None:
        run = self._runs.pop(pid)
        run.channel.runs.discard(pid)
        self._containers.run_ended()
        if run.channel in self._channels:
            self._send(run.channel, {"id": run.request_id, "exit": code if code >= 0 else 128 - code})

    def _end(self) -> None:
        """Kill every process of the pod, wait until they are gone, write the last state."""
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            left = processes.descendants(os.getpid()) + self._containers.main_processes()
            processes.kill_all(left)
            self._reap(drain=self._wakeup[0])
            if not left:
                break
            time.sleep(0.001)
        self._containers.finish_all()
        self._remove_sockets()
        self._ending = True

    def _remove_sockets(self) -> None:
        for path in (self._config["control"], self._config["rsh"]):
            Path(path).unlink(missing_ok=True)

    # State

    def _state(self) -> dict[str, Any]:
        return {
            "event": "state",
            "pid": os.getpid(),
            "configured": self._is_configured,
            "containers": self._containers.describe(),
        }

    def _changed(self) -> None:
        try:
            state = self._save_durably()
        except OSError:
            state = self._state()  # a full disk: the agent is told all the same, and the pod goes on
        for channel in list(self._channels):
            if channel.is_agents:
                self._send(channel, state)

    def _save_durably(self) -> dict[str, Any]:
        state = self._state()
        write_durably(Path(self._config["folder"]) / "state.json", json.dumps(state).encode())
        return state
