"""Health and metrics over HTTP: a few fixed paths, GET only, one answer for each connection.

A server library would cost more memory than the rest of this; probes and scrapers ask for nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

from gangline.errors import UserError

request_timeout_s = 10.0
"""A client that takes longer to ask or to take the answer is cut off."""

request_bytes_max = 16 << 10


class PathAnswer(NamedTuple):
    """What a path answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Paths = Mapping[str, Callable[[], PathAnswer]]


@asynccontextmanager
async def serve_paths(address: str, port: int, paths: Paths) -> AsyncIterator[int]:
    """Serve while the context is open; its value is the port (of use when 0 was asked for).

    Args:
        address: to listen on.
        port: to listen on; 0 takes a free one.
        paths: what each path answers; called for each request, and must not wait.

    Raises:
        UserError: the port cannot be listened on.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(request_timeout_s):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_respond(request, paths))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(handle, address, port, limit=request_bytes_max)
    except OSError as error:
        raise UserError(
            f"cannot listen on {address}:{port}: {error.strerror or error}", hint="choose another port"
        ) from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _respond(request: bytes, paths: Paths) -> bytes:
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split()
    method, target = (words[0], words[1]) if len(words) == 3 else ("", "")
    handler = paths.get(target.partition("?")[0])
    if method not in ("GET", "HEAD"):
        answer = PathAnswer(405 if method else 400, b"only GET is served here\n")
    elif handler is None:
        answer = PathAnswer(404, b"not found; served: " + " ".join(sorted(paths)).encode() + b"\n")
    else:
        answer = handler()
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else answer.body)
