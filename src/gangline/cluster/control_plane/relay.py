"""Carries connections from the bridge of the pods to the API server, which listens on one address alone."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

READ_BYTES = 64 << 10


async def relay(sock: socket.socket, port: int) -> None:
    """Carry every connection to a bound socket to that port of loopback; endless."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to_there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # the API server is being started again
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, to_there), _copy(there, writer))
        finally:
            writer.close()
            to_there.close()

    async with await asyncio.start_server(carry, sock=sock) as server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof() if writer.can_write_eof() else writer.close()
