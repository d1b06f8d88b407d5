"""The channels of a remote command over one WebSocket: the first byte of a message tells whose it is.

Source: k8s.io/apimachinery/pkg/util/remotecommand/constants.go and k8s.io/apiserver/pkg/util/wsstream.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Any

from aiohttp import WSMsgType, web

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.request_context import RequestContext

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
V4_BASE64 = "v4.base64.channel.k8s.io"
PROTOCOLS = (V5, V4, V4_BASE64)
"""Best first; only the newest can end standard input and leave the rest open."""

MESSAGE_BYTES_MAX = 16 << 20
"""Of one message: kubectl sends 32 KiB, a Python program perhaps all that it has at once."""
CLOSE_TIMEOUT_S = 5.0
ALIVE_PERIOD_S = 15.0
"""How often a client that says nothing is written to, so that one that is gone is noticed."""


def is_upgrade(context: RequestContext) -> bool:
    """Whether the request asks for a WebSocket."""
    headers = context.request.headers
    asked = {word.strip().lower() for word in headers.get("Connection", "").split(",")}
    return "upgrade" in asked and headers.get("Upgrade", "").lower() == "websocket"


def require_upgrade(context: RequestContext) -> None:
    """Refuse what is no WebSocket.

    Raises:
        StatusError: 400.
    """
    if is_upgrade(context):
        return
    found = context.request.headers.get("Upgrade", "")
    hint = f": {found} is not served here, kubectl 1.31 and newer ask for a WebSocket" if found else ""
    raise status_errors.bad_request(f"Upgrade request required{hint}")


class Channels:
    """One WebSocket, its messages taken apart; made by ``open_channels``."""

    def __init__(self, web_socket: web.WebSocketResponse) -> None:
        self.response = web_socket
        self._is_base64 = web_socket.ws_protocol == V4_BASE64

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel; waits while the client does not read.

        Raises:
            ConnectionError: the client is gone.
        """
        if self._is_base64:
            await self.response.send_str(f"{channel:d}" + base64.b64encode(data).decode())
        else:
            await self.response.send_bytes(bytes((channel,)) + data)

    async def receive(self) -> tuple[int, bytes | memoryview] | None:
        """Return channel and content of the next message, None when the client has closed."""
        while True:
            message = await self.response.receive()
            if message.type == WSMsgType.BINARY:
                if message.data:
                    return message.data[0], memoryview(message.data)[1:]
            elif message.type == WSMsgType.TEXT:
                if found := _of_text(message.data):
                    return found
            else:
                return None

    async def keep_alive(self) -> None:
        """Write to the client now and then; a client that is gone ends the request. Endless."""
        while True:
            await asyncio.sleep(ALIVE_PERIOD_S)
            await self.response.ping()

    async def finish(self, status: dict[str, Any]) -> None:
        """Send how it ended, and close."""
        await self.send(ERROR, json.dumps(status).encode())
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await self.response.close()


def _of_text(text: str) -> tuple[int, bytes] | None:
    """Return channel and content of a message of the base64 protocols: a digit and the coded bytes."""
    if not text[:1].isdigit():
        return None
    try:
        return int(text[0]), base64.b64decode(text[1:])
    except (binascii.Error, ValueError):
        return None


async def open_channels(context: RequestContext) -> Channels:
    """Answer with a WebSocket in the first protocol of the client's that is served.

    Raises:
        StatusError: 400, there is none.
    """
    offered = [one.strip() for one in context.request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if not set(offered) & set(PROTOCOLS):
        raise status_errors.bad_request(
            f"unable to upgrade: the client offers {offered}, served are {', '.join(PROTOCOLS)}"
        )
    response = web.WebSocketResponse(
        protocols=PROTOCOLS, compress=False, max_msg_size=MESSAGE_BYTES_MAX, timeout=CLOSE_TIMEOUT_S
    )
    await response.prepare(context.request)
    return Channels(response)
