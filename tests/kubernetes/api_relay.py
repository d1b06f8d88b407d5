"""Lead the API server's cluster IP to it, as kube-proxy would: ``api_relay.py LISTEN PORT SERVER PORT``."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def main(listen: str, port: str, server: str, server_port: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(server, int(server_port))
            await asyncio.gather(_copy(reader, back), _copy(there, writer))

    await (await asyncio.start_server(serve, listen, int(port))).serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


asyncio.run(main(*sys.argv[1:]))
