"""The channels of a remote command over one WebSocket: the first byte of a message tells whose it is.

Source: k8s.io/apimachinery/pkg/util/remotecommand/constants.go and k8s.io/apiserver/pkg/util/wsstream.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Protocol

from aiohttp import web
from aiohttp._websocket.helpers import websocket_mask

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import RequestParameters
from gangline.kube.pod_streams.web_socket import Piece, WebSocket, accept_of

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
V4_BASE64 = "v4.base64.channel.k8s.io"
V1 = "channel.k8s.io"
PROTOCOLS = (V5, V4, V4_BASE64, V1)
"""Best first; only the newest can end standard input and leave the rest open, the oldest tells no status."""
BINARY = "binary.k8s.io"
"""Of one stream without channels: a log."""

WHOLE_BYTES_MAX = 4 << 20
"""Of a message that is taken whole: a size, or input in the base64 protocol."""
CLOSE_TIMEOUT_S = 5.0
ALIVE_PERIOD_S = 15.0
"""How often a client that says nothing is written to, so that one that is gone is noticed."""
_NO_CHANNEL = -1


class StreamConnection(Protocol):
    """What bytes pass over, whatever it is made of."""

    async def send(self, data: bytes) -> None:
        """Send; waits while the other side does not read.

        Raises:
            ConnectionError: it is gone.
        """

    async def receive(self) -> Piece | None:
        """Return what has come, None when the other side has closed."""

    async def ping(self) -> None:
        """Write something without meaning; as ``send``."""

    async def close(self, timeout_s: float) -> None:
        """Close in order."""


class Channels(Protocol):
    """The channels of a remote command."""

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel; as ``StreamConnection.send``."""

    async def receive(self) -> tuple[int, bytes | bytearray] | None:
        """Return channel and content of what has come, None when the client has closed."""

    async def ping(self) -> None:
        """As ``StreamConnection.ping``."""

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended, and close."""


class WebSocketChannels:
    """One WebSocket, its messages taken apart."""

    def __init__(self, web_socket: WebSocket, protocol: str) -> None:
        self.web_socket = web_socket
        self._protocol = protocol
        self._is_base64 = protocol == V4_BASE64
        self._channel = 0

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel; waits while the client does not read.

        Raises:
            ConnectionError: the client is gone.
        """
        if self._is_base64:
            await self.web_socket.send(b"%d" % channel + base64.b64encode(data), is_text=True)
        else:
            await self.web_socket.send(bytes((channel,)) + data)

    async def receive(self) -> tuple[int, bytes | bytearray] | None:
        """Return channel and content of what has come, None when the client has closed.

        Input comes in pieces of a message, everything else whole.
        """
        while (piece := await self.web_socket.receive()) is not None:
            if piece.begins and not self._is_base64:
                self._channel = piece.data.pop(0) if piece.data else _NO_CHANNEL
            if self._channel == STDIN and not self._is_base64:
                if piece.data:
                    return STDIN, piece.data
                continue
            whole = piece.data
            while not piece.ends:
                if (following := await self.web_socket.receive()) is None or len(whole) > WHOLE_BYTES_MAX:
                    return None
                piece = following
                whole += piece.data
            if not self._is_base64:
                return self._channel, whole
            if found := _of_text(whole):
                return found
        return None

    async def ping(self) -> None:
        """Write something without meaning."""
        await self.web_socket.ping()

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended, and close."""
        if self._protocol != V1:
            await self.send(ERROR, json.dumps(status).encode())
        elif status.get("message"):
            await self.send(ERROR, status["message"].encode())
        await self.web_socket.close(CLOSE_TIMEOUT_S)


def _of_text(text: bytearray) -> tuple[int, bytes] | None:
    """Return channel and content of a message of the base64 protocol: a digit and the coded bytes."""
    try:
        return int(text[:1]), base64.b64decode(text[1:])
    except (binascii.Error, ValueError):
        return None


async def keep_alive(connection: StreamConnection | Channels) -> None:
    """Write to the client now and then; a client that is gone ends the request. Endless."""
    while True:
        await asyncio.sleep(ALIVE_PERIOD_S)
        await connection.ping()


async def open_web_socket(
    context: RequestParameters, protocols: Sequence[str]
) -> tuple[WebSocket, web.StreamResponse]:
    """Answer with a WebSocket in the first protocol of the client's that is served; ``protocol_of`` tells it.

    The response is what the handler returns when it is over.

    Raises:
        StatusError: 400, it asks for none.
        ConnectionError: the client is gone.
    """
    request = context.request
    protocol = protocol_of(context, protocols)
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": accept_of(request.headers.get("Sec-WebSocket-Key", "")),
        "Sec-WebSocket-Protocol": protocol,
    }
    response = web.StreamResponse(status=101, headers=headers)
    await response.prepare(request)
    response.force_close()
    before, transport = request.protocol, request.transport
    if transport is None:
        raise ConnectionResetError("the client has gone")
    web_socket = WebSocket(is_client=False, unmask=websocket_mask, on_lost=before.connection_lost)
    web_socket.take(transport)
    return web_socket, response


def protocol_of(context: RequestParameters, protocols: Sequence[str]) -> str:
    """Return the first protocol of the client's that is among those.

    Raises:
        StatusError: 400, there is none, or the request asks for no WebSocket.
    """
    headers = context.request.headers
    asked = {word.strip().lower() for word in headers.get("Connection", "").split(",")}
    upgrade = headers.get("Upgrade", "")
    if "upgrade" not in asked or upgrade.lower() != "websocket":
        hint = f": {upgrade} is not served, kubectl 1.31 and newer ask for a WebSocket" if upgrade else ""
        raise status_errors.bad_request(f"Upgrade request required{hint}")
    offered = [one.strip() for one in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    for protocol in offered:
        if protocol in protocols:
            return protocol
    raise status_errors.bad_request(
        f"unable to upgrade: the client offers {', '.join(offered)}; served are {', '.join(protocols)}"
    )
