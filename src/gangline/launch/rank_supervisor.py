r"""Starts ranks on one host and ends them all when the launcher says so, or is gone. Standard library only.

It is sent to each host over the remote shell and runs with any Python from 3.7 on. One session serves all
ranks of the host. It reads lines of JSON from standard input:

    {"ports": [20001, 20002]}                            once: ports for rank 0, the first free one is taken
    {"stay": true}                                       until told to stop, also when no rank runs any more
    {"start": [{"rank": 0, "argv": [...], "env": {...}}], "cwd": "/code"}
    {"board": "..."}                                     a text for all ranks, in a file that a variable names
    {"kill": [2]}                                        SIGKILL for these
    {"stop": true, "grace_s": 30, "only_first": true}    SIGTERM now, SIGKILL then, 3 s unless given; SIGTERM
                                                         not to what a rank has started

and writes ``EVENT RANK LENGTH\n`` followed by LENGTH bytes: ``hello`` (JSON), ``started`` (process id),
``failed`` (words), ``out``, ``err`` (output), ``exit`` (code, 128 + N for signal N). When its standard input
ends, for the launcher was killed or the network is gone, it ends every rank: SIGTERM, then SIGKILL. What
ranks left behind ends with them.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

BOARD_VARIABLE = "GANGLINE_ELASTIC_BOARD"
GRACE_S = 3.0
CHUNK = 65536


def send(event: str, rank: int = 0, payload: bytes = b"") -> None:
    """Write one event, whole."""
    data = b"%s %d %d\n" % (event.encode(), rank, len(payload)) + payload
    while data:
        data = data[os.write(1, data) :]


def addresses() -> dict[str, str]:
    """Return {interface: IPv4 address} of this host; Linux only, else empty."""
    found: dict[str, str] = {}
    if not sys.platform.startswith("linux"):
        return found
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def first_free(ports: list[int]) -> int:
    """Return the first port that can be listened on, 0 when none can."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return 0


def adopt_orphans() -> None:
    """Become the parent of what ranks leave behind, where the system has that (Linux)."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def children() -> list[int]:
    """Return this process's children, empty where there is no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == os.getpid() and state != b"Z":
            found.append(int(path.parent.name))
    return found


def has_children() -> bool:
    """Tell whether any child is left, after reaping those that have ended.

    A process whose first thread has ended looks dead, but hands its own children on only when its last has.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_orphans() -> None:
    """End what ranks left behind: ranks of an ``mpirun`` that died, and children of theirs."""
    until = time.monotonic() + GRACE_S
    while has_children() and time.monotonic() < until:
        number = signal.SIGTERM if until - time.monotonic() > GRACE_S / 2 else signal.SIGKILL
        for pid in children():
            try:
                os.kill(pid, number)
            except OSError:
                pass
        time.sleep(0.05)


class RankSupervisor:
    """The ranks of this host."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.kill_at: float | None = None
        self.orphaned = False
        self.told_to_end = False
        self.stays = False
        self.board = ""
        self.woken, wake = os.pipe()
        for end in (self.woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        # Handlers, not SIG_IGN: ranks would inherit that. Only the end of standard input ends a supervisor.
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def start(self, ranks: list[dict[str, Any]], cwd: str) -> None:
        """Start ranks, each in a process group of its own."""
        for one in ranks:
            env = dict(os.environ)
            env.update(one["env"])
            env.setdefault("PWD", cwd)
            if self.board:
                env[BOARD_VARIABLE] = self.board
            try:
                process = subprocess.Popen(
                    one["argv"],
                    cwd=cwd or None,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                send("failed", one["rank"], str(error).encode())
                continue
            self.processes[one["rank"]] = process
            send("started", one["rank"], str(process.pid).encode())
            for stream, event in ((process.stdout, "out"), (process.stderr, "err")):
                assert stream is not None
                self.selector.register(stream, selectors.EVENT_READ, (event, one["rank"]))

    def post(self, text: str) -> None:
        """Show a text to all ranks: in a file of theirs, replaced at once."""
        if not self.board:
            self.board = str(Path(tempfile.mkdtemp(prefix="gangline-elastic-"), "board"))
        draft = Path(self.board + ".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.board)

    def signal_all(self, number: int) -> None:
        """Send a signal to the process groups of the ranks that still run."""
        for process in self.processes.values():
            try:
                os.killpg(process.pid, number)
            except OSError:
                pass

    def stop(self, grace_s: float = GRACE_S, only_first: bool = False) -> None:
        """Ask the ranks to end; they are killed after the grace time, the shortest that was said."""
        kill_at = time.monotonic() + grace_s
        if self.kill_at is None:
            if only_first:
                for process in self.processes.values():
                    process.send_signal(signal.SIGTERM)
            else:
                self.signal_all(signal.SIGTERM)
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)

    def reap(self) -> None:
        """Report ranks that ended; their last output has been read before, as far as it is there."""
        for rank, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            for stream, event in ((process.stdout, "out"), (process.stderr, "err")):
                self.drain(stream, event, rank)
            try:
                os.killpg(process.pid, signal.SIGKILL if self.kill_at else signal.SIGTERM)
            except OSError:
                pass
            del self.processes[rank]
            self.report("exit", rank, str(128 - code if code < 0 else code).encode())
            self.told_to_end = self.told_to_end or not (self.processes or self.stays)

    def drain(self, stream: IO[bytes] | None, event: str, rank: int) -> None:
        """Pass on what a stream still holds, without waiting for processes that keep it open."""
        if stream is None or stream.closed:
            return
        os.set_blocking(stream.fileno(), False)
        while True:
            try:
                data = os.read(stream.fileno(), CHUNK)
            except OSError:
                break
            if not data:
                break
            self.report(event, rank, data)
        self.forget(stream)

    def forget(self, stream: Any) -> None:
        """Stop reading a stream."""
        try:
            self.selector.unregister(stream)
        except KeyError:
            pass
        stream.close()

    def report(self, event: str, rank: int, payload: bytes) -> None:
        """Send an event unless nobody listens any more."""
        if self.orphaned:
            return
        try:
            send(event, rank, payload)
        except OSError:
            self.orphaned = True
            self.stop()

    def run(self, waiting: bytes = b"") -> None:
        """Serve until standard input has ended, or all ranks after a start, and no rank runs.

        Args:
            waiting: commands that come before those of standard input.
        """
        adopt_orphans()
        self.selector.register(0, selectors.EVENT_READ, "commands")
        self.selector.register(self.woken, selectors.EVENT_READ, "woken")
        waiting = self.obey_all(waiting)
        while not self.told_to_end or self.processes:
            for key, _ in self.selector.select(0.1 if self.kill_at else None):
                data = os.read(key.fd, CHUNK)
                if key.data == "woken":
                    continue
                if key.data != "commands":
                    if data:
                        self.report(key.data[0], key.data[1], data)
                    else:
                        self.forget(key.fileobj)
                    continue
                if not data:
                    self.selector.unregister(0)
                    self.told_to_end = True
                    self.stop()
                waiting = self.obey_all(waiting + data)
            self.reap()
            if self.kill_at and time.monotonic() > self.kill_at:
                self.signal_all(signal.SIGKILL)
        end_orphans()
        if self.board:
            shutil.rmtree(str(Path(self.board).parent), ignore_errors=True)

    def obey_all(self, text: bytes) -> bytes:
        """Do what whole lines say; return the rest."""
        *lines, rest = text.split(b"\n")
        for line in lines:
            self.obey(json.loads(line.decode()))
        return rest

    def obey(self, command: dict[str, Any]) -> None:
        """Do what a line says."""
        if "ports" in command:
            port = first_free(command["ports"])
            hello = {"host": socket.gethostname(), "addresses": addresses(), "port": port}
            send("hello", 0, json.dumps(hello).encode())
        self.stays = command.get("stay", self.stays)
        if "board" in command:
            self.post(command["board"])
        for rank in command.get("kill", []):
            if rank in self.processes:
                os.killpg(self.processes[rank].pid, signal.SIGKILL)
        if command.get("stop"):
            self.stop(command.get("grace_s", GRACE_S), command.get("only_first", False))
            self.told_to_end = True
        if "start" in command:
            self.start(command["start"], command.get("cwd", ""))
            self.told_to_end = not (self.processes or self.stays)


if __name__ == "__main__":
    RankSupervisor().run()
