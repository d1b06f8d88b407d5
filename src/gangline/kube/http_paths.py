"""Health and metrics over HTTP, and short messages that are posted: one answer for each connection.

A server library would cost more memory than the rest of this; probes and scrapers ask for nothing more.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO
from pathlib import Path
from socket import socket
from typing import NamedTuple
from urllib.parse import parse_qsl

from gangline.errors import UserError

request_timeout_s = 10.0
"""A client that takes longer to ask or to take the answer is cut off."""

request_bytes_max = 16 << 10
PARAMETERS_MAX = 16
posted_bytes_max = 64 << 10


class PathAnswer(NamedTuple):
    """What a path answers."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Paths = Mapping[str, Callable[[], PathAnswer]]
Query = Callable[[Mapping[str, str]], Awaitable[PathAnswer]]
"""Answers by the parameters behind the question mark of a path; may wait."""

_NO_QUERIES: Mapping[str, Query] = {}


class Posted(NamedTuple):
    """A message: the path that it was sent to, its headers and its body."""

    path: str
    headers: Message
    body: bytes


Take = Callable[[Posted], Awaitable[PathAnswer]]
_Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serve_paths(
    address: str, port: int, paths: Paths, queries: Mapping[str, Query] = _NO_QUERIES
) -> AsyncIterator[int]:
    """Serve while the context is open; its value is the port (of use when 0 was asked for).

    Args:
        address: to listen on.
        port: to listen on; 0 takes a free one.
        paths: what each path answers; called for each request, and must not wait.
        queries: paths that are asked with parameters.

    Raises:
        UserError: the port cannot be listened on.
    """
    try:
        answer = _once(_answers(paths, queries))
        server = await asyncio.start_server(answer, address, port, limit=request_bytes_max)
    except OSError as error:
        raise UserError(
            f"cannot listen on {address}:{port}: {error.strerror or error}", hint="choose another port"
        ) from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def serve_paths_at(path: Path, paths: Paths) -> AsyncIterator[None]:
    """Serve on a Unix socket while the context is open; one that an earlier process has left is replaced."""
    path.unlink(missing_ok=True)
    answer = _once(_answers(paths))
    async with await asyncio.start_unix_server(answer, path, limit=request_bytes_max):
        yield


@asynccontextmanager
async def serve_posts(sockets: Sequence[socket], context: ssl.SSLContext, take: Take) -> AsyncIterator[None]:
    """Take messages over TLS while the context is open.

    Args:
        sockets: that are bound.
        context: of the server.
        take: answers each message; a body is at most ``posted_bytes_max``.
    """

    async def answer(reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        words = line.decode("latin-1").split()
        try:
            headers = parse_headers(BytesIO(rest))
        except HTTPException:
            return _encode(PathAnswer(HTTPStatus.BAD_REQUEST, b"the headers cannot be read\n"))
        length = headers.get("Content-Length", "")
        if len(words) != 3 or words[0] != "POST":
            # 401 in place of 405: whoever knocks without a token learns nothing of what is served
            return _encode(PathAnswer(HTTPStatus.UNAUTHORIZED, b"only POST with a token is served here\n"))
        if not (length.isascii() and length.isdigit()):
            return _encode(PathAnswer(HTTPStatus.LENGTH_REQUIRED, b"Content-Length must be set\n"))
        if int(length) > posted_bytes_max:
            rule = f"{length} bytes are more than {posted_bytes_max}\n"
            return _encode(PathAnswer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, rule.encode()))
        body = await reader.readexactly(int(length))
        return _encode(await take(Posted(words[1].partition("?")[0], headers, body)))

    async with AsyncExitStack() as stack:
        for sock in sockets:
            started = asyncio.start_server(_once(answer), sock=sock, ssl=context, limit=request_bytes_max)
            await stack.enter_async_context(await started)
        yield


def _answers(
    paths: Paths, queries: Mapping[str, Query] = _NO_QUERIES
) -> Callable[[asyncio.StreamReader], Awaitable[bytes]]:
    async def answer(reader: asyncio.StreamReader) -> bytes:
        request = await reader.readuntil(b"\r\n\r\n")
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split()
        method, target = (words[0], words[1]) if len(words) == 3 else ("", "")
        path, _, parameters = target.partition("?")
        if method == "GET" and (query := queries.get(path)) is not None:
            return _encode(await query(dict(parse_qsl(parameters, max_num_fields=PARAMETERS_MAX))))
        return _respond(method, path, paths)

    return answer


def _once(answer: Callable[[asyncio.StreamReader], Awaitable[bytes]]) -> _Connected:
    """Return what reads one request of a connection, answers and closes it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(request_timeout_s):
                writer.write(await answer(reader))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return handle


def _respond(method: str, path: str, paths: Paths) -> bytes:
    handler = paths.get(path)
    if method not in ("GET", "HEAD"):
        answer = PathAnswer(405 if method else 400, b"only GET is served here\n")
    elif handler is None:
        answer = PathAnswer(404, b"not found; served: " + " ".join(sorted(paths)).encode() + b"\n")
    else:
        answer = handler()
    return _encode(answer, has_body=method != "HEAD")


def _encode(answer: PathAnswer, *, has_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if has_body else b"")
