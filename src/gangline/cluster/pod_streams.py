"""Streams into a running pod, at the shim that watches over it: further programs, and their ends.

The shim is handed the descriptors that a program is to read and write, so that no byte of a stream passes
through it: what is full or not read stops the other side, by the kernel's own bounds. One connection to the
shim's control socket stands for one stream; when it closes, the shim kills what runs on it. It works while
the node agent is down.

A terminal is made inside the container, where its name leads to it; its other side comes back over a socket,
as an OCI runtime hands over a console.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.errors import ClusterError

PIPE_BYTES = 1 << 20
"""Of each pipe, where the system grants it: what is under way besides the sockets' own buffers."""
READ_BYTES = 256 << 10
DRAIN_S = 0.5
"""How long the streams of an ended program are read on that a process it left behind holds open."""
CONNECT_TIMEOUT_S = 10.0
"""Of a connection to a port of a pod."""
_F_SETPIPE_SZ = 1031
_LINE_BYTES = 64 << 10


class NotRunningError(ClusterError):
    """No container of that name runs in the pod."""

    code = "not-running"


class Descriptor:
    """One end of a pipe or terminal that is read or written without blocking the loop; closed once."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        self.is_closed = False
        self._is_ending = False
        self._waiting: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return what there is, empty at the end."""
        while not self.is_closed:
            try:
                return os.read(self.number, READ_BYTES)
            except BlockingIOError:
                if self._is_ending:
                    break
                await self._ready(writing=False)
            except OSError:  # a terminal that nobody has open any more
                break
        return b""

    async def write(self, data: bytes | bytearray) -> None:
        """Write all; what nobody reads any more is dropped."""
        left = memoryview(data)
        while left and not self.is_closed:
            try:
                left = left[os.write(self.number, left) :]
            except BlockingIOError:
                await self._ready(writing=True)
            except OSError:
                self.close()

    def end(self) -> None:
        """Take what is there already as the last of it."""
        self._is_ending = True
        self._wake()

    def close(self) -> None:
        """Let go of it; who waits for it finds the end."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._waiting is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.number)
            loop.remove_writer(self.number)
        self._wake()
        os.close(self.number)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _ready(self, *, writing: bool) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        (loop.add_writer if writing else loop.add_reader)(self.number, self._wake)
        try:
            await self._waiting
        finally:
            if not self.is_closed:  # else the number may be another's by now
                (loop.remove_writer if writing else loop.remove_reader)(self.number)
            self._waiting = None


class PodProcess:
    """A program that runs in a container: a further one, or its own, to which one attaches.

    Attributes:
        stdin: where to write its input, None without.
        outputs: where to read its output, by stream (1 and 2; a terminal has only 1).
        failure: why it was not executed, empty when it was.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._terminal: Descriptor | None = None
        self._is_attached = False
        self.stdin: Descriptor | None = None
        self.outputs: dict[int, Descriptor] = {}
        self.failure = ""

    @classmethod
    async def start(
        cls,
        control: Path,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> PodProcess:
        """Start a program in a running container.

        Raises:
            NotRunningError: nobody watches over the pod, or no such container runs.
        """
        connection = await _connect(control)
        process = cls(connection)
        request = {"id": 1, "op": "exec", "name": container, "argv": list(command), "tty": tty}
        theirs: list[int] = []
        try:
            if tty:
                console, given = socket.socketpair()
                theirs = [given.detach()]
            else:
                theirs = process._pipes(stdin=stdin, stdout=stdout, stderr=stderr)
            socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], theirs)
            for number in theirs:
                os.close(number)
            theirs = []
            answer = await process._next()
            if answer is None or answer.get("retry"):
                raise NotRunningError(f'container not found ("{container}")')
            process.failure = answer.get("error", "")
            if tty:
                with console:
                    if not process.failure:
                        process._take_terminal(console, stdin=stdin)
        except BaseException:
            for number in theirs:
                os.close(number)
            process.close()
            raise
        return process

    @classmethod
    async def attach(
        cls, control: Path, container: str, *, stdin: bool = False, stdout: bool = True, stderr: bool = True
    ) -> PodProcess:
        """Attach to the program of a running container: to its input, and to its output from now on.

        Raises:
            NotRunningError: as for ``start``.
        """
        connection = await _connect(control)
        process = cls(connection)
        process._is_attached = True
        theirs: list[int] = []
        try:
            null, *theirs = process._pipes(stdin=False, stdout=stdout, stderr=stderr)
            os.close(null)
            request = json.dumps({"id": 1, "op": "attach", "name": container, "stdin": stdin}).encode()
            socket.send_fds(connection, [request + b"\n"], theirs)
            await _readable(connection)
            process._buffer, descriptors, _, _ = socket.recv_fds(connection, _LINE_BYTES, 1)
            answer = await process._next()
            if answer is None or answer.get("retry"):
                raise NotRunningError(f'container not found ("{container}")')
            if descriptors:
                given = Descriptor(descriptors[0])
                process._terminal = given if answer["tty"] else None
                process.stdin = given if stdin else None
        except BaseException:
            process.close()
            raise
        finally:
            for number in theirs:
                os.close(number)
        return process

    def end_input(self) -> None:
        """Let the program find the end of its input."""
        if self.stdin is not None and self.stdin is not self._terminal:
            self.stdin.close()
        if self._is_attached:
            self._connection.send(b'{"id": 2, "op": "end_input"}\n')

    def _pipes(self, *, stdin: bool, stdout: bool, stderr: bool) -> list[int]:
        """Make the pipes; return the ends of the program, in the order of its descriptors."""
        theirs = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            if not wanted:
                theirs.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
                continue
            reader, writer = os.pipe()
            with contextlib.suppress(OSError):
                fcntl.fcntl(reader, _F_SETPIPE_SZ, PIPE_BYTES)
            ours, given = (writer, reader) if number == 0 else (reader, writer)
            theirs.append(given)
            if number == 0:
                self.stdin = Descriptor(ours)
            else:
                self.outputs[number] = Descriptor(ours)
        return theirs

    def _take_terminal(self, console: socket.socket, *, stdin: bool) -> None:
        _, descriptors, _, _ = socket.recv_fds(console, 1, 1, socket.MSG_DONTWAIT)
        os.set_inheritable(descriptors[0], False)
        self._terminal = Descriptor(descriptors[0])
        self.outputs[1] = self._terminal
        if stdin:
            self.stdin = Descriptor(os.dup(descriptors[0]))

    async def wait(self) -> int | None:
        """Return the exit code (128 and the signal's number for a killed program); None: the pod is gone."""
        while (message := await self._next()) is not None:
            if "exit" in message:
                return int(message["exit"])
        return None

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal; nothing without one."""
        if self._terminal is not None and not self._terminal.is_closed:
            size = struct.pack("HHHH", rows & 0xFFFF, columns & 0xFFFF, 0, 0)
            fcntl.ioctl(self._terminal.number, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        """End it: the shim kills what still runs."""
        for descriptor in (self.stdin, self._terminal, *self.outputs.values()):
            if descriptor is not None:
                descriptor.close()
        self._connection.close()

    async def _next(self) -> dict[str, Any] | None:
        """Return the shim's next message about this program, None when it is gone."""
        loop = asyncio.get_running_loop()
        while True:
            line, found, self._buffer = self._buffer.partition(b"\n")
            if found:
                message: dict[str, Any] = json.loads(line)
                if "event" not in message:
                    return message
                continue
            try:
                chunk = await loop.sock_recv(self._connection, _LINE_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                return None
            self._buffer = line + chunk


async def connect_port(control: Path, addresses: Sequence[str], port: int) -> socket.socket:
    """Return a connection to a port of a pod, at the first of the addresses that takes one.

    The shim makes the socket, which stays on the pod's network wherever it is used.

    Raises:
        NotRunningError: nobody watches over the pod.
        OSError: nothing listens there.
    """
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for address in addresses:
        with await _connect(control) as connection:
            connection.sendall(b'{"id": 1, "op": "socket"}\n')
            await _readable(connection)
            _, descriptors, _, _ = socket.recv_fds(connection, _LINE_BYTES, 1)
            if not descriptors:
                raise NotRunningError("no process watches over the pod")
        found = socket.socket(fileno=descriptors[0])
        found.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.sock_connect(found, (address, port))
            return found
        except OSError as error:  # TimeoutError is one
            found.close()
            failure = failure or error
        except BaseException:
            found.close()
            raise
    raise failure or OSError("the pod has no address")


async def _readable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)


async def _connect(control: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, str(control))
    except OSError:
        connection.close()
        raise NotRunningError("no process watches over the pod") from None
    return connection
