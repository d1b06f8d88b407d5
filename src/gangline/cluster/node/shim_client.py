"""The agent's side of the shims: the fork server that forks them, and one connection to each.

Nothing is polled: a shim pushes every change. A connection that breaks means that the shim is gone
(``ShimConnection.closed``); after a restart of the agent ``ShimConnection.connect`` finds it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.errors import ClusterError

CALL_TIMEOUT_S = 30.0
_LINE_LIMIT_BYTES = 4 * 1024 * 1024
_SHIM = Path(__file__).parent / "shim"


class ShimError(ClusterError):
    """A shim refused an operation or is gone."""

    code = "shim"


class ShimConnection:
    """One control connection to a shim: calls with answers, and pushed state."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._on_state: Callable[[dict[str, Any]], None] = lambda _: None
        self._on_closed: Callable[[], None] = lambda: None
        self.created: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.is_closed = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def over(cls, connection: socket.socket) -> ShimConnection:
        """Return a connection over a connected socket."""
        reader, writer = await asyncio.open_connection(sock=connection, limit=_LINE_LIMIT_BYTES)
        return cls(reader, writer)

    @classmethod
    async def connect(cls, path: Path) -> ShimConnection:
        """Connect to the shim that listens at ``path``.

        Raises:
            OSError: nobody listens there.
        """
        reader, writer = await asyncio.open_unix_connection(str(path), limit=_LINE_LIMIT_BYTES)
        return cls(reader, writer)

    def subscribe(self, on_state: Callable[[dict[str, Any]], None], on_closed: Callable[[], None]) -> None:
        """Set who is told of state changes and of the end of the connection (both in the loop)."""
        self._on_state = on_state
        self._on_closed = on_closed

    def send(self, operation: str, **fields: Any) -> asyncio.Future[dict[str, Any]]:
        """Send a request at once; await the returned future for the answer.

        The future raises ``ShimError`` when the shim refuses or goes away.
        """
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieve)
        if self.is_closed:
            answer.set_exception(ShimError("the process that watches over the pod is gone"))
            return answer
        self._next_id += 1
        self._answers[self._next_id] = answer
        message = {"id": self._next_id, "op": operation} | fields
        self._writer.write(json.dumps(message).encode() + b"\n")
        return answer

    async def call(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer, at most ``CALL_TIMEOUT_S``."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await self.send(operation, **fields)
        except TimeoutError:
            raise ShimError(f"no answer to `{operation}` within {CALL_TIMEOUT_S:.0f} s") from None

    async def close(self) -> None:
        """Close the connection; the shim and its pod go on."""
        self._on_closed = lambda: None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                self._dispatch(json.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            self._end()

    def _dispatch(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event in ("created", "failed"):
            if not self.created.done():
                self.created.set_result(message)
            return
        if event == "state":
            self._on_state(message)
        answer = self._answers.pop(message.get("id", 0), None)
        if answer is not None and not answer.done():
            if "error" in message:
                answer.set_exception(ShimError(message["error"]))
            else:
                answer.set_result(message)

    def _end(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._writer.close()
        gone = ShimError("the process that watches over the pod is gone")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(gone)
        self._answers.clear()
        if not self.created.done():
            self.created.set_result({"event": "failed", "error": gone.message})
        self._on_closed()


def _retrieve(answer: asyncio.Future[dict[str, Any]]) -> None:
    if not answer.cancelled():
        answer.exception()  # nobody has to await an answer


class ForkServer:
    """The process that forks shims; started on first use, and again when it has died.

    One that was started before this process entered a user namespace can only be started by another process:
    ``can_restart`` is False, and ``watch`` tells of its death.
    """

    def __init__(self, log: Path | None = None, *, can_restart: bool = True) -> None:
        self._log = log
        self._can_restart = can_restart
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the process, about 80 ms until it serves; requests may be sent at once."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            errors: Any = subprocess.DEVNULL
            if self._log is not None:
                errors = stack.enter_context(self._log.open("ab"))
            self._process = subprocess.Popen(
                [sys.executable, "-X", "utf8", "-I", "-S", str(_SHIM)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        theirs.close()
        self._socket = ours

    async def spawn(self, config: dict[str, Any]) -> ShimConnection:
        """Fork a shim for one pod; await ``created`` of the returned connection for its namespaces.

        Raises:
            ShimError: no shim can be started.
        """
        for _ in range(2):
            if self._process is None or self._process.poll() is not None:
                if not self._can_restart:
                    raise ShimError("the process that forks shims outside of the user namespace was killed")
                self.start()
            assert self._socket is not None
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(self._socket, [json.dumps(config).encode() + b"\n"], [theirs.fileno()])
            except OSError:
                ours.close()
                self.stop()
                continue
            finally:
                theirs.close()
            return await ShimConnection.over(ours)
        raise ShimError("the process that forks shims cannot be started; see the agent's log")

    def sweep(self, uid: str = "") -> None:
        """Have the fork server kill what killed shims left to it, or one pod's; returns at once."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendall(json.dumps({"sweep": uid}).encode() + b"\n")

    async def watch(self) -> None:
        """Return never, unless the fork server dies and this process cannot start another.

        Raises:
            ShimError: then; the agent's next process will have one again.
        """
        if self._can_restart or self._socket is None:
            return
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, gone.set)  # it never writes
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._socket)
        raise ShimError("the process that forks shims outside of the user namespace was killed")

    def stop(self) -> None:
        """End the fork server; the shims it forked go on."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendall(b'{"end": true}\n')
            self._socket.close()
        if self._process is not None:
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        self._socket = None
