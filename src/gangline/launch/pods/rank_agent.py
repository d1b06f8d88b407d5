"""Runs a launcher's commands in this pod, where ssh would: over TLS, for pods of the same job alone.

It runs by the image's own Python, 3.8 or newer, beside ``rank_supervisor`` and ``remote_shell``, from the
standard library alone:

    python3 rank_agent.py serve [-- COMMAND...]              until COMMAND ends; for ever without one
    python3 rank_agent.py run [ssh options] HOST COMMAND...  in the pod HOST; ends with COMMAND's exit code

``agent.key`` and ``agent.crt`` beside it are one job's own: each side shows the certificate, and trusts no
other. A command has its pod's environment; it ends when the connection does. Commands are words joined by
blanks for a shell, as ssh takes them. A pod that is not up yet is waited for, at most
``$GANGLINE_RSH_WAIT_S`` seconds. ``pod_gang`` asks for a supervisor of its own in place of a command.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PORT = int(os.environ.get("GANGLINE_AGENT_PORT") or 29022)
WAIT_S = 600.0
"""Pods of one job may come minutes apart, for each node pulls the image."""
HANDSHAKE_S = 10.0
NAME_LIMIT_S = 30.0
"""A cluster publishes names of pods one by one, and remembers for seconds that one was not there."""
REQUEST_BYTES_MAX = 1 << 20
CONNECTIONS_MAX = 128
CHUNK = 65536
EXIT_UNREACHABLE = 255
_RETRY_S = 0.05
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""A pod whose node is gone is noticed after a minute and a half."""


def tls(folder: Path, is_server: bool) -> ssl.SSLContext:
    """Return what lets in whoever has the job's key, and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # the certificate is the job's, whatever its pods are called
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(str(folder / "agent.crt"), str(folder / "agent.key"))
    context.load_verify_locations(str(folder / "agent.crt"))
    return context


class RankAgent:
    """Serves commands until its own command ends, it is told to end, or it is asked to by SIGTERM."""

    def __init__(self, folder: Path, port: int = PORT) -> None:
        self.folder = folder
        self.context = tls(folder, is_server=True)
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("", port))
        self.listener.listen(CONNECTIONS_MAX)
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.supervisors: dict[int, subprocess.Popen[bytes]] = {}
        self.lock = threading.Lock()
        self.gang = threading.Lock()
        self.ended = threading.Event()
        self.exit_code = 0

    def end(self, code: int) -> None:
        """Have ``serve`` return; the first code counts."""
        if not self.ended.is_set():
            self.exit_code = code
            self.ended.set()

    def serve(self, command: list[str] | None = None) -> int:
        """Serve, beside a command if there is one; return its exit code, or what this was ended with."""
        threading.Thread(target=self._accept, daemon=True).start()
        process = None
        if command:
            process = subprocess.Popen(command)
            threading.Thread(target=self._wait, args=(process,), daemon=True).start()
        self.ended.wait()
        if process and process.poll() is None:
            process.terminate()
        self._stop_all()
        return self.exit_code

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self.end(128 - code if code < 0 else code)

    def _stop_all(self) -> None:
        """End what connections have started: a supervisor ends its ranks when its input ends."""
        with self.lock:
            left = list(self.supervisors.values())
        for supervisor in left:
            assert supervisor.stdin is not None
            try:
                supervisor.stdin.close()
            except OSError:
                pass
        for supervisor in left:
            supervisor.wait()

    def _accept(self) -> None:
        while True:
            self.slots.acquire()
            try:
                connection, _ = self.listener.accept()
            except OSError:
                self.slots.release()
                time.sleep(_RETRY_S)
                continue
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(HANDSHAKE_S)
            with self.context.wrap_socket(connection, server_side=True) as stream:
                keep_alive(stream)
                request = take_request(stream)
                if "end" in request:
                    self.end(int(request["end"]))
                elif "supervisor" in request:
                    with self.gang:  # ranks that start again wait for the end of those before them
                        self._run(stream, b"")
                elif request:
                    self._run(stream, _start(request))
        except (OSError, ValueError, KeyError):
            pass  # whoever it was is told nothing
        finally:
            connection.close()
            self.slots.release()

    def _run(self, stream: ssl.SSLSocket, command: bytes) -> None:
        """Give a supervisor a command and what the connection says, and pass on its words, until one ends."""
        supervisor = subprocess.Popen(
            [sys.executable, "-I", str(self.folder / "rank_supervisor.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with self.lock:
            self.supervisors[supervisor.pid] = supervisor
        commands, events = supervisor.stdin, supervisor.stdout
        assert commands is not None and events is not None
        try:
            commands.write(command)
            commands.flush()
            while True:
                ready, _, _ = select.select([events, stream], [], [])
                if events in ready:
                    data = os.read(events.fileno(), CHUNK)
                    if not data:
                        break
                    stream.settimeout(None)
                    stream.sendall(data)
                else:
                    said = take(stream)
                    if said == b"":
                        break
                    commands.write(said or b"")
                    commands.flush()
        finally:
            for pipe in (commands, events):
                try:
                    pipe.close()
                except OSError:
                    pass
            supervisor.wait()
            with self.lock:
                del self.supervisors[supervisor.pid]


def _start(request: dict[str, Any]) -> bytes:
    """Return what has a supervisor start a request's command, once the name that it needs is known."""
    if request.get("name"):
        await_name(request["name"], time.monotonic() + NAME_LIMIT_S)
    rank = {"rank": 0, "argv": ["/bin/sh", "-c", request["command"]], "env": {}}
    return json.dumps({"start": [rank], "cwd": request.get("cwd", "")}).encode() + b"\n"


def keep_alive(stream: socket.socket) -> None:
    """Have the kernel look whether the other side is still there."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def take(stream: ssl.SSLSocket) -> bytes | None:
    """Return what the other side has said: None for nothing yet, empty when it has gone."""
    stream.settimeout(0)
    try:
        return stream.recv(CHUNK)
    except (ssl.SSLWantReadError, BlockingIOError):
        return None
    except OSError:
        return b""


def take_request(stream: ssl.SSLSocket) -> dict[str, Any]:
    """Return a connection's one line of JSON; empty when none comes.

    Raises:
        ValueError: it is no JSON.
    """
    data = b""
    while not data.endswith(b"\n"):
        piece = stream.recv(CHUNK)
        data += piece
        if not piece or len(data) > REQUEST_BYTES_MAX:
            return {}
    answer: dict[str, Any] = json.loads(data.decode())
    return answer


def connect(folder: Path, host: str, deadline: float, port: int = PORT) -> ssl.SSLSocket:
    """Return a connection to a pod's agent, waited for.

    Raises:
        OSError: it is not there in time, or is not of this job.
    """
    context = tls(folder, is_server=False)
    while True:
        try:
            plain = socket.create_connection((host, port), 3)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
    plain.settimeout(HANDSHAKE_S)
    stream = context.wrap_socket(plain)
    keep_alive(stream)
    return stream


def run(folder: Path, host: str, command: list[str], deadline: float, port: int = PORT) -> int:
    """Run a command in another pod with this process's streams for output; return its exit code.

    Raises:
        OSError: the pod cannot be reached, or is lost.
    """
    with connect(folder, host, deadline, port) as stream, stream.makefile("rb") as answer:
        line, name = " ".join(command), socket.gethostname()
        request = {"command": line, "cwd": os.environ.get("GANGLINE_RSH_CWD", "")}
        if f" {name}:" in line:  # Hydra's daemons are to call back by this pod's bare name
            request["name"] = name
        stream.sendall(json.dumps(request).encode() + b"\n")
        stream.settimeout(None)
        while True:
            head = answer.readline().split()
            if not head:
                raise ConnectionError("the pod is gone, or is not of this job")
            payload = answer.read(int(head[2]))
            if head[0] == b"exit":
                return int(payload)
            if head[0] == b"failed":
                raise ConnectionError(payload.decode(errors="replace"))
            while head[0] in (b"out", b"err") and payload:
                payload = payload[os.write(1 if head[0] == b"out" else 2, payload) :]


def await_name(name: str, deadline: float) -> None:
    """Wait until a host's name is known here; the command itself says what is wrong if it never is."""
    while time.monotonic() < deadline:
        try:
            socket.getaddrinfo(name, None)
            return
        except OSError:
            time.sleep(_RETRY_S * 4)


def end(folder: Path, host: str, code: int, deadline: float, port: int = PORT) -> None:
    """Have a pod's agent end with a code.

    Raises:
        OSError: it cannot be reached.
    """
    with connect(folder, host, deadline, port) as stream:
        stream.sendall(json.dumps({"end": code}).encode() + b"\n")
        stream.recv(1)  # it has read the line when it closes


def serve(folder: Path, command: list[str] | None = None) -> int:
    """Serve until the command ends, another pod says so, or this one is told to end; return the exit code."""
    try:
        agent = RankAgent(folder)
    except OSError as error:  # on the host's network another pod may have the port
        sys.exit(f"gangline: the rank agent cannot serve at port {PORT}: {error}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end(128 + signal.SIGTERM))
    return agent.serve(command)


def main(words: list[str]) -> int:
    """Serve or run; 255 when the other pod cannot be reached, as ssh does."""
    folder = Path(__file__).parent
    if words[:1] == ["serve"]:
        return serve(folder, words[2:])
    sys.path.append(str(folder))  # `python3 -I` does not look beside the program
    from remote_shell import split_arguments  # type: ignore[import-not-found,unused-ignore]

    try:
        host, command = split_arguments(words[1:])
        wait_s = float(os.environ.get("GANGLINE_RSH_WAIT_S") or WAIT_S)
        return run(folder, host, command, time.monotonic() + wait_s)
    except (OSError, ValueError) as error:
        line = " ".join(words[1:])[:200]
        sys.stderr.write(f"gangline: cannot run a command in another pod: {error} ({line})\n")
        return EXIT_UNREACHABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
