"""Streams over SPDY/3.1, as kube-apiserver opens them to a kubelet, and kubectl before 1.31 to a server.

Source: k8s.io/kubelet/pkg/cri/streaming/remotecommand (httpstream.go) and k8s.io/apimachinery's spdy package.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from gangline.cluster.pod_streams import READ_BYTES
from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import RequestParameters
from gangline.cluster.server.streams.channels import (
    CLOSE,
    CLOSE_TIMEOUT_S,
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
)
from gangline.cluster.server.streams.spdy import PING_FRAME, SpdyConnection, SpdyError, data_frame
from gangline.kube.pod_streams.web_socket import Piece

UPGRADE = "SPDY/3.1"
COMMAND_PROTOCOLS = ("v4.channel.k8s.io",)
PORT_PROTOCOLS = ("portforward.k8s.io",)
STREAMS_TIMEOUT_S = 30.0
"""Until a client has opened all the streams that it asked for; a kubelet waits as long."""
_CHANNELS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}


def is_spdy(context: RequestParameters) -> bool:
    """Return whether a request asks for SPDY."""
    return context.request.headers.get("Upgrade", "").upper() == UPGRADE


def spdy_protocol(context: RequestParameters, protocols: Sequence[str]) -> str:
    """Return the first protocol of the client's that is among those.

    Raises:
        StatusError: 400, there is none.
    """
    lines = context.request.headers.getall("X-Stream-Protocol-Version", [])
    offered = [one.strip() for line in lines for one in line.split(",")]
    for protocol in offered:
        if protocol in protocols:
            return protocol
    raise status_errors.bad_request(
        f"unable to upgrade: the client offers {', '.join(offered)}; served are {', '.join(protocols)}"
    )


class _Lost(asyncio.StreamReaderProtocol):
    """Tells of the end of the connection besides."""

    def __init__(self, reader: asyncio.StreamReader, on_lost: Callable[[Exception | None], object]) -> None:
        super().__init__(reader)
        self._tell = on_lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._tell(exc)


class SpdyTransport:
    """The bytes of an upgraded connection; a ``channels.StreamConnection``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> Piece | None:
        """Return what has come, None at the end."""
        try:
            data = await self._reader.read(READ_BYTES)
        except ConnectionError:
            return None
        return Piece(bytearray(data), begins=True, ends=True, is_text=False) if data else None

    async def ping(self) -> None:
        """Send a ping."""
        await self.send(PING_FRAME)

    async def close(self, timeout_s: float) -> None:
        """Send what is left, and close."""
        self._writer.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


async def open_spdy(
    context: RequestParameters, protocols: Sequence[str]
) -> tuple[SpdyTransport, web.StreamResponse]:
    """Answer with SPDY; the response is what the handler returns when it is over.

    Raises:
        StatusError: 400, none of the protocols is the client's.
        ConnectionError: the client is gone.
    """
    protocol = spdy_protocol(context, protocols)
    headers = {"Upgrade": UPGRADE, "Connection": "Upgrade", "X-Stream-Protocol-Version": protocol}
    response = web.StreamResponse(status=101, headers=headers)
    await response.prepare(context.request)
    response.force_close()
    before, transport = context.request.protocol, context.request.transport
    if transport is None:
        raise ConnectionResetError("the client has gone")
    reader = asyncio.StreamReader(limit=READ_BYTES)
    stream = _Lost(reader, before.connection_lost)
    transport.set_protocol(stream)
    stream.connection_made(transport)
    transport.resume_reading()
    writer = asyncio.StreamWriter(transport, stream, reader, asyncio.get_running_loop())
    return SpdyTransport(reader, writer), response


class SpdyChannels:
    """The channels of a remote command, each a stream of SPDY."""

    def __init__(self, transport: SpdyTransport) -> None:
        self._transport = transport
        self._spdy = SpdyConnection()
        self._streams: dict[int, int] = {}
        """Stream by channel."""
        self._come: deque[tuple[int, bytes]] = deque()

    async def opened(self, channels: set[int]) -> None:
        """Wait until the client has opened its streams.

        Raises:
            ConnectionError: it does not, or is gone.
        """
        try:
            async with asyncio.timeout(STREAMS_TIMEOUT_S):
                while not channels <= set(self._streams):
                    if not await self._take():
                        raise ConnectionResetError("the client has gone")
        except TimeoutError:
            raise ConnectionResetError("the client does not open its streams") from None

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel that the client has opened; as ``StreamConnection.send``."""
        if channel in self._streams:
            await self._transport.send(data_frame(self._streams[channel], data))

    async def receive(self) -> tuple[int, bytes | bytearray] | None:
        """Return channel and content of what has come, None when the client has closed."""
        while not self._come:
            if not await self._take():
                return None
        return self._come.popleft()

    async def ping(self) -> None:
        """As ``StreamConnection.ping``."""
        await self._transport.ping()

    async def finish(self, status: dict[str, Any]) -> None:
        """Send the end of every output and how it ended, and close."""
        ends = {STDOUT: b"", STDERR: b"", ERROR: json.dumps(status).encode()}
        frames = [
            data_frame(self._streams[one], data, ends=True)
            for one, data in ends.items()
            if one in self._streams
        ]
        await self._transport.send(b"".join(frames))
        await self._transport.close(CLOSE_TIMEOUT_S)

    async def _take(self) -> bool:
        """Take what comes next; whether something came."""
        piece = await self._transport.receive()
        if piece is None:
            return False
        channel_of = {stream: channel for channel, stream in self._streams.items()}
        try:
            for event in self._spdy.feed(piece.data):
                if event.headers is not None:
                    channel = _CHANNELS.get(event.headers.get("streamtype", ""))
                    if channel is not None:
                        self._streams[channel] = event.stream
                        channel_of[event.stream] = channel
                    continue
                channel = channel_of.get(event.stream)
                if channel is not None and event.data:
                    self._come.append((channel, event.data))
                if channel == STDIN and event.ends:
                    self._come.append((CLOSE, bytes((STDIN,))))
        except SpdyError as error:
            raise ConnectionResetError(str(error)) from error
        replies, self._spdy.replies = b"".join(self._spdy.replies), []
        if replies:
            await self._transport.send(replies)
        return True
