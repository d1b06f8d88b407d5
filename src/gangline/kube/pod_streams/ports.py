"""Connections to a port of a pod of any cluster, one WebSocket each."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from gangline.kube.errors import ApiError
from gangline.kube.pod_streams.program import CLOSE_TIMEOUT_S, V4

if TYPE_CHECKING:
    from gangline.kube.client import Client

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
"""Each channel begins with the number of the port."""
_READ_BYTES = 64 << 10


async def forward(
    client: Client,
    pod: str,
    namespace: str | None,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    """Carry a connection to a port of a pod until either side ends it; return what went wrong, or nothing."""
    try:
        web_socket, _ = await client.open_pod_stream(
            pod, "portforward", namespace, params={"ports": port}, protocols=(V4,)
        )
    except ApiError as error:
        writer.close()
        return str(error)

    async def send() -> None:
        while data := await reader.read(_READ_BYTES):
            await web_socket.send(bytes((_DATA,)) + data)
        await asyncio.Event().wait()  # the protocol knows no end of one direction

    async def take() -> bytes:
        channel, heads, failure = -1, {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}, b""
        while (piece := await web_socket.receive()) is not None:
            data = piece.data
            if piece.begins:
                channel = data.pop(0) if data else -1
            head = min(heads.get(channel, 0), len(data))
            if head:
                heads[channel] -= head
                del data[:head]
            if channel == _DATA and data:
                writer.write(data)
                await writer.drain()
            elif channel == _ERROR:
                failure += data
        return failure

    tasks: list[asyncio.Task[bytes | None]] = [asyncio.create_task(take()), asyncio.create_task(send())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(OSError):
            return (done.pop().result() or b"").decode(errors="replace")
        return ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        await web_socket.close(CLOSE_TIMEOUT_S)
