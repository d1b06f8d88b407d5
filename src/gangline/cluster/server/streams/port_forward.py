"""``pods/portforward``: connections to ports of a pod, over one WebSocket.

kubectl opens a pair of SPDY streams for each connection, one for its bytes and one for what goes wrong. The
official Python client has a pair of channels for each port that it names, and one connection to each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gangline.cluster.paths import ClusterPaths
from gangline.cluster.pod_streams import READ_BYTES, NotRunningError, connect_port
from gangline.cluster.server import status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.request_context import RequestContext, RequestParameters
from gangline.cluster.server.streams.channels import (
    CLOSE_TIMEOUT_S,
    V4,
    V5,
    StreamConnection,
    keep_alive,
    open_web_socket,
    protocol_of,
)
from gangline.cluster.server.streams.commands import pod_of
from gangline.cluster.server.streams.spdy import SpdyConnection, SpdyError, data_frame
from gangline.cluster.server.streams.spdy_channels import PORT_PROTOCOLS, is_spdy, open_spdy
from gangline.kube.pod_streams.web_socket import WebSocket

TUNNEL = "SPDY/3.1+portforward.k8s.io"
PROTOCOLS = (TUNNEL, V4, V5)
CONNECTIONS_MAX = 256
"""At once, of one client."""
Send = Callable[[int, bytes, bool], Awaitable[None]]


async def forward_ports(api: ApiContext, context: RequestContext) -> web.StreamResponse:
    """Answer ``pods/portforward``."""
    return await forward_to(api.paths, pod_of(api, context), context)


async def forward_to(
    paths: ClusterPaths, pod: dict[str, Any], context: RequestParameters
) -> web.StreamResponse:
    """Answer with connections to ports of a pod.

    Raises:
        StatusError: 400, no protocol or port is served.
    """
    target = PodPorts(paths, pod)
    connection: StreamConnection
    if is_spdy(context):
        connection, response = await open_spdy(context, PORT_PROTOCOLS)
        serve = _serve_tunnel(connection, target)
    else:
        protocol = protocol_of(context, PROTOCOLS)
        ports = [] if protocol == TUNNEL else _ports(context)
        web_socket, response = await open_web_socket(context, PROTOCOLS)
        connection = web_socket
        is_tunnel = protocol == TUNNEL
        serve = _serve_tunnel(web_socket, target) if is_tunnel else _serve_ports(web_socket, target, ports)
    alive = asyncio.create_task(keep_alive(connection))
    try:
        with contextlib.suppress(ConnectionError, SpdyError):
            await serve
        await connection.close(CLOSE_TIMEOUT_S)
    finally:
        alive.cancel()
    return response


def _ports(context: RequestParameters) -> list[int]:
    """Return the ports that the query names.

    Raises:
        StatusError: 400.
    """
    words = [word for text in context.query.getall("ports", []) for word in text.split(",")]
    ports = [port_number(word) for word in words]
    if not ports or not all(ports) or len(ports) > CONNECTIONS_MAX // 2:
        raise status_errors.bad_request('query parameter "ports" must name ports from 1 to 65535')
    return ports


def port_number(text: str) -> int:
    """Return the port that a text names, 0 for none from 1 to 65535."""
    number = int(text) if text.isdecimal() and text.isascii() and len(text) <= 5 else 0
    return number if number < 1 << 16 else 0


class PodPorts:
    """The pod that connections go to."""

    def __init__(self, paths: ClusterPaths, pod: dict[str, Any]) -> None:
        self._control = paths.pod_socket(pod["metadata"]["uid"])
        self._uid = pod["metadata"]["uid"]
        address = (pod.get("status") or {}).get("podIP") or ""
        # On the machine's own network the loopback address of a pod is what tells it from others.
        own_first = address.startswith("127.")
        self._addresses = [address, "127.0.0.1"] if own_first else ["127.0.0.1", *filter(None, [address])]

    async def connect(
        self, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port.

        Raises:
            ConnectionError: with upstream's words.
        """
        try:
            connection = await connect_port(self._control, self._addresses, port)
        except (OSError, NotRunningError) as error:
            why = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else error
            raise ConnectionError(
                f"error forwarding port {port} to pod {self._uid}: failed to connect to localhost:{port} "
                f"inside the pod: dial tcp4 {self._addresses[0]}:{port}: connect: {why}"
            ) from None
        return await asyncio.open_connection(
            sock=connection, limit=READ_BYTES, ssl=tls, server_hostname="" if tls else None
        )


@dataclass
class _Forward:
    """One connection: the numbers of its two streams, and who carries it."""

    data: int
    error: int
    writer: asyncio.Future[asyncio.StreamWriter | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def carry(self, target: PodPorts, port: int, send: Send) -> None:
        """Connect, and send what comes from the pod until it ends."""
        try:
            try:
                reader, writer = await target.connect(port)
            except ConnectionError as error:
                self.writer.set_result(None)
                await send(self.error, str(error).encode(), True)
                await send(self.data, b"", True)
                return
            self.writer.set_result(writer)
            try:
                with contextlib.suppress(ConnectionResetError):
                    while chunk := await reader.read(READ_BYTES):
                        await send(self.data, chunk, False)
                await send(self.data, b"", True)
                await send(self.error, b"", True)
            finally:
                writer.close()
        finally:
            if not self.writer.done():
                self.writer.set_result(None)

    async def take(self, data: bytes | bytearray, *, ends: bool) -> None:
        """Give the pod what the client has sent; waits while it does not read."""
        writer = await asyncio.shield(self.writer)
        if writer is None:
            return
        with contextlib.suppress(OSError, RuntimeError):
            if data:
                writer.write(data)
                await writer.drain()
            if ends and writer.can_write_eof():
                writer.write_eof()


async def _serve_tunnel(connection: StreamConnection, target: PodPorts) -> None:
    """Serve the streams of a SPDY connection until the client closes."""
    spdy = SpdyConnection()
    errors: dict[str, int] = {}
    forwards: dict[int, tuple[_Forward, asyncio.Task[None]]] = {}

    async def send(stream: int, data: bytes, ends: bool) -> None:
        await connection.send(data_frame(stream, data, ends=ends))

    async def carry(forward: _Forward, port: str) -> None:
        try:
            await forward.carry(target, port_number(port), send)
        finally:
            forwards.pop(forward.data, None)

    def begin(stream: int, headers: Mapping[str, str]) -> None:
        request = headers.get("requestid", "")
        if headers.get("streamtype") == "error" and len(errors) < CONNECTIONS_MAX:
            errors[request] = stream
        elif headers.get("streamtype") == "data" and len(forwards) < CONNECTIONS_MAX:
            forward = _Forward(stream, errors.pop(request, 0))
            forwards[stream] = forward, asyncio.create_task(carry(forward, headers.get("port", "")))

    try:
        while (piece := await connection.receive()) is not None:
            for event in spdy.feed(piece.data):
                if event.headers is not None:
                    begin(event.stream, event.headers)
                elif event.stream in forwards:
                    forward, task = forwards[event.stream]
                    await forward.take(event.data, ends=event.ends)
                    if event.is_reset:
                        task.cancel()
            replies, spdy.replies = b"".join(spdy.replies), []
            if replies:
                await connection.send(replies)
    finally:
        await _cancelled([task for _, task in forwards.values()])


async def _serve_ports(web_socket: WebSocket, target: PodPorts, ports: list[int]) -> None:
    """Serve one connection to each port until the client closes or all have ended."""

    async def send(channel: int, data: bytes, ends: bool) -> None:
        if data:
            await web_socket.send(bytes((channel,)) + data)

    forwards = [_Forward(2 * index, 2 * index + 1) for index in range(len(ports))]
    for forward, port in zip(forwards, ports, strict=True):
        for channel in (forward.data, forward.error):
            await web_socket.send(bytes((channel,)) + struct.pack("<H", port))
    tasks = [
        asyncio.create_task(forward.carry(target, port, send))
        for forward, port in zip(forwards, ports, strict=True)
    ]

    async def take() -> None:
        channel = -1
        while (piece := await web_socket.receive()) is not None:
            if piece.begins:
                channel = piece.data.pop(0) if piece.data else -1
            if channel >= 0 and not channel % 2 and channel // 2 < len(forwards):
                await forwards[channel // 2].take(piece.data, ends=False)

    async def wait_all() -> None:
        await asyncio.wait(tasks)

    taking, ended = asyncio.create_task(take()), asyncio.create_task(wait_all())
    try:
        await asyncio.wait([taking, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled([taking, ended, *tasks])


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
