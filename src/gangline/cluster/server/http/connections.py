"""Connections: how many, from whom, and how long one may say nothing.

aiohttp speaks HTTP; what it leaves open is here. A connection is counted from the moment it is accepted,
before its TLS handshake. Until one request on it has shown who asks, it belongs to nobody: of those there are
few, and the oldest makes room for the newest, so that half-open ones cannot lock anybody out. What cannot be
parsed is answered with a ``Status`` and no line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import failure_answer

HEADER_TIMEOUT_S: Final = 10.0
"""From the connection to the end of the first header, TLS handshake included; a real server waits 32 s."""

ACCEPT_RETRY_S: Final = 0.1
"""After a failed ``accept``, which is usually one for want of file descriptors."""

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one share of connections.

    Attributes:
        total_max: connections at once.
        unknown_max: of them those on which nobody has shown yet who asks.
        peer_max: of one address.
        idle_timeout_s: a connection without a request is closed then.
    """

    total_max: int
    unknown_max: int
    peer_max: int
    idle_timeout_s: float


REMOTE: Final = ConnectionLimits(total_max=600, unknown_max=100, peer_max=400, idle_timeout_s=180.0)
"""A process may have 1,024 files open without asking; kubectl takes one connection, a busy client 10."""

LOCAL: Final = ConnectionLimits(total_max=300, unknown_max=200, peer_max=300, idle_timeout_s=3600.0)
"""On the Unix socket, which only its owner opens."""


class Slot:
    """One connection: whose it is, and how to end it."""

    def __init__(self, table: ConnectionTable, address: str) -> None:
        self._table = table
        self.address = address
        self.abort: Callable[[], object] = lambda: None

    def known(self) -> None:
        """Note that somebody has shown who asks."""
        self._table.known(self)

    def free(self) -> None:
        """The connection is no more."""
        self._table.free(self)


class ConnectionTable:
    """The connections of one share."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._slots: set[Slot] = set()
        self._unknown: OrderedDict[Slot, None] = OrderedDict()
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._slots)

    def take(self, address: str) -> Slot | None:
        """Return a slot for a new connection, None for none; the oldest unknown one may have to go."""
        limits = self.limits
        is_full = len(self._slots) >= limits.total_max or self._of_peer[address] >= limits.peer_max
        if is_full or len(self._unknown) >= limits.unknown_max:
            oldest = next(iter(self._unknown), None)
            if oldest is None or (self._of_peer[address] >= limits.peer_max and oldest.address != address):
                return None
            oldest.abort()
            self.free(oldest)
        slot = Slot(self, address)
        self._slots.add(slot)
        self._unknown[slot] = None
        self._of_peer[address] += 1
        return slot

    def known(self, slot: Slot) -> None:
        """Note that somebody has shown who asks on a connection."""
        self._unknown.pop(slot, None)

    def free(self, slot: Slot) -> None:
        """Give a slot back; once is enough."""
        if slot not in self._slots:
            return
        self._slots.remove(slot)
        self._unknown.pop(slot, None)
        self._of_peer[slot.address] -= 1
        if not self._of_peer[slot.address]:
            del self._of_peer[slot.address]


class ClientConnection(RequestHandler):
    """aiohttp's side of a connection, with an end to the wait for the first header."""

    def __init__(self, server: HttpServer, slot: Slot, **options: Any) -> None:
        super().__init__(server, **options)
        self.slot = slot
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self.slot.abort = transport.abort
        self._header_timer = asyncio.get_running_loop().call_later(HEADER_TIMEOUT_S, transport.abort)

    def header_came(self) -> None:
        """Stop the clock: from now on the idle time-out holds."""
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the slot back."""
        self.header_came()
        self.slot.free()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or no longer can be answered; handlers answer for themselves."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        if status == 400:
            failure = status_errors.bad_request(f"the request cannot be read: {(message or str(exc))[:256]}")
        else:
            failure = status_errors.StatusError(
                status, "Timeout" if status == 504 else "InternalError", "no answer"
            )
        answer = failure_answer(failure)
        answer.force_close()
        return answer


class HttpServer(web.Server):
    """aiohttp's server, whose connections are ours."""

    def __init__(self, handle: Handle, *, idle_timeout_s: float, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        super().__init__(
            handle,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=idle_timeout_s,
            auto_decompress=False,  # nothing of a body is unpacked: see failures.encoded_body
        )

    def connection(self, slot: Slot) -> ClientConnection:
        """Return the protocol of a new connection."""
        return ClientConnection(self, slot, loop=self._loop, **self._kwargs)

    def _request(self, message, payload, protocol, writer, task):  # type: ignore[no-untyped-def]
        protocol.header_came()
        return web.BaseRequest(
            message, payload, protocol, writer, task, self._loop, client_max_size=self._body_bytes_max
        )


class Listener:
    """Accepts connections on one socket for as long as it runs."""

    def __init__(
        self, sock: socket.socket, server: HttpServer, table: ConnectionTable, context: ssl.SSLContext | None
    ) -> None:
        self._socket = sock
        self._server = server
        self._table = table
        self._context = context
        self._handshakes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept; endless."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._socket)
                except OSError:
                    await asyncio.sleep(ACCEPT_RETRY_S)
                    continue
                slot = self._table.take(address[0] if isinstance(address, tuple) else "")
                if slot is None:
                    connection.close()
                    continue
                task = loop.create_task(self._open(connection, slot))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
        finally:
            for task in self._handshakes:
                task.cancel()
            self._socket.close()

    async def _open(self, connection: socket.socket, slot: Slot) -> None:
        """Shake hands, and leave the connection to aiohttp."""
        task = asyncio.current_task()
        assert task is not None
        slot.abort = task.cancel
        timeout_s = HEADER_TIMEOUT_S if self._context is not None else None
        try:
            connection.setblocking(False)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._server.connection(slot),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=timeout_s,
            )
        except (OSError, asyncio.CancelledError):  # no TLS, or the other side left, or had to
            slot.free()
            with contextlib.suppress(OSError):
                connection.close()
