"""Kept connections that carry one request at a time: HTTP/1.1, whole bodies, and nothing else.

A library for all of HTTP takes 0.3 ms of processor time for a small request, most of the time of a program
that binds thousands of pods. Writes need no proxy, redirect, cookie, compression or stream: they go through
here. Framing of answers: RFC 9112, section 6.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from gangline.kube.socket_owner import ForeignSocketError, check_peer

head_bytes_max = 64 << 10
"""Longest head of an answer that is taken."""

next_address_after_s = 0.25
"""A host's next address is tried beside one that has not answered for so long (RFC 8305, section 5)."""

_PATH_SAFE = "/:@!$&'()*+,;=~%"
_NO_BODY = (204, 304)


class NotConnected(OSError):
    """No connection came about: the server has not seen the request."""


class BadAnswer(OSError):
    """What came is no HTTP, or ended too early."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server answered; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def close(self) -> None:
        """Do nothing: all of it is here."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is.

    Attributes:
        url: ``http`` or ``https``, with a path to be put before every other if it has one.
        socket: path of a Unix socket, in place of the host's address.
        tls: for ``https``.
        server_name: what the certificate must name, where that is not the host.
        connect_timeout_s: time to open a connection, TLS included.
    """

    url: str
    socket: str = ""
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    connect_timeout_s: float = 10.0


class Connections:
    """Connections to one server; idle ones are used again, the last first.

    Args:
        endpoint: of the server.
        headers: of every request.
        idle_s: a connection that was idle for longer is not used again.
    """

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], *, idle_s: float) -> None:
        url = urlsplit(endpoint.url)
        self._endpoint = endpoint
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/")
        netloc = url.netloc.rpartition("@")[2]
        self._headers = _header_lines({"Host": netloc, **headers})
        self._idle_s = idle_s
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._is_closed = False

    async def request(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> HttpAnswer:
        """Send a request and return its answer; a cancelled one closes its connection.

        Raises:
            NotConnected: the server has not seen it.
            OSError: it may have.
        """
        target = self._prefix + quote(path, safe=_PATH_SAFE) + (f"?{query}" if query else "")
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}{_header_lines(headers)}"
        connection = self._take_idle() or await self._connect()
        try:
            answer = await connection.exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close all connections, one that is about to open too; running requests fail."""
        self._is_closed = True
        for connection in list(self._open):
            connection.close()

    def _take_idle(self) -> _Connection | None:
        oldest_s = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.used_s >= oldest_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop, endpoint = asyncio.get_running_loop(), self._endpoint
        try:
            async with asyncio.timeout(endpoint.connect_timeout_s):
                if endpoint.socket:
                    transport, connection = await loop.create_unix_connection(
                        lambda: _Connection(self._open), endpoint.socket
                    )
                    try:
                        check_peer(transport.get_extra_info("socket"), endpoint.socket)
                    except ForeignSocketError:
                        connection.close()
                        raise
                else:
                    name = (endpoint.server_name or self._host) if endpoint.tls else None
                    _, connection = await loop.create_connection(
                        lambda: _Connection(self._open),
                        self._host,
                        self._port,
                        ssl=endpoint.tls,
                        server_hostname=name,
                        happy_eyeballs_delay=next_address_after_s,
                    )
        except TimeoutError as error:
            raise NotConnected(f"no connection within {endpoint.connect_timeout_s:g} s") from error
        except OSError as error:  # errors of TLS are among them
            raise NotConnected(str(error) or type(error).__name__) from error
        if self._is_closed:
            connection.close()
            raise NotConnected("the client is closed")
        return connection


class _Connection(asyncio.Protocol):
    """One connection.

    Args:
        open_ones: holds it while it is open.
    """

    def __init__(self, open_ones: set[_Connection]) -> None:
        self._open_ones = open_ones
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._reader = _AnswerReader()
        self.used_s = 0.0

    @property
    def is_reusable(self) -> bool:
        """Whether it is open and the last answer has ended."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._answer is None and self._reader.keeps_open

    async def exchange(self, request: bytes) -> HttpAnswer:
        """Send a request and return the answer."""
        if self._transport is None:
            raise BadAnswer("the server closed the connection")
        self._reader = _AnswerReader()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None

    def close(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # nothing was asked, or it is answered
            self._reader.keeps_open = False
            self.close()
            return
        try:
            self._finish(self._reader.feed(data))
        except (ValueError, OSError) as error:
            self._fail(BadAnswer(f"the answer is no HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._open_ones.discard(self)
        if self._answer is None:
            return
        self._finish(self._reader.end())
        reason = "the server closed the connection"
        self._fail(error if isinstance(error, OSError) else BadAnswer(reason))

    def _finish(self, answer: HttpAnswer | None) -> None:
        if answer is not None and self._answer is not None and not self._answer.done():
            self.used_s = asyncio.get_running_loop().time()
            self._answer.set_result(answer)

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class _AnswerReader:
    """Puts one answer together from the bytes as they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._status = 0
        self._headers: dict[str, str] = {}
        self._left: int | None = None  # bytes of the body, or of the chunk; None: until the end
        self._is_chunked = False
        self.keeps_open = True
        """Whether another request may follow on the connection."""

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take bytes; return the answer once it is whole.

        Raises:
            ValueError: they are no HTTP.
        """
        self._buffer += data
        while not self._status:
            if not self._read_head():
                return None
        is_whole = self._read_chunks() if self._is_chunked else self._read_plain()
        if not is_whole:
            return None
        self.keeps_open &= not self._buffer  # more than was asked for
        return self._whole()

    def end(self) -> HttpAnswer | None:
        """Return the answer that the end of the connection completes, if it does."""
        is_until_end = self._status and not self._is_chunked and self._left is None
        self.keeps_open = False
        return self._whole() if is_until_end else None

    def _whole(self) -> HttpAnswer:
        return HttpAnswer(self._status, self._headers, b"".join(self._parts))

    def _read_head(self) -> bool:
        """Read one head, if it is there; that of an interim answer (1xx) counts as none."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > head_bytes_max:
                raise ValueError(f"its head has more than {head_bytes_max} bytes")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError(f"it begins with {first[:40]!r}")
        status = int(rest[:3])
        if 100 <= status < 200:
            return True
        self._status = status
        for line in lines:
            name, _, value = line.partition(":")
            self._headers[name.lower()] = value.strip()
        options = self._headers.get("connection", "").lower()
        self.keeps_open = version != "HTTP/1.0" and "close" not in options
        has_body = status not in _NO_BODY
        self._is_chunked = has_body and "chunked" in self._headers.get("transfer-encoding", "").lower()
        if self._is_chunked or not has_body:
            self._left = 0
        elif "content-length" in self._headers:
            self._left = _size(self._headers["content-length"], 10)
        return True

    def _read_plain(self) -> bool:
        taken = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        self._take(taken)
        if self._left is None:
            return False
        self._left -= taken
        return self._left == 0

    def _read_chunks(self) -> bool:
        """Read chunks, each with its size before and a line's end after; one of size 0 is the last."""
        while True:
            if self._left:
                taken = min(self._left, len(self._buffer))
                self._take(taken)
                self._left -= taken
                if self._left:
                    return False
            start = 2 if self._parts else 0  # the end of the chunk before
            end = self._buffer.find(b"\r\n", start)
            if end < 0:
                return False
            if start and self._buffer[:start] != b"\r\n":
                raise ValueError("a chunk is longer than it says")
            size = _size(self._buffer[start:end].split(b";")[0].strip().decode("latin-1"), 16)
            if size == 0:
                return self._read_trailers(end)
            del self._buffer[: end + 2]
            self._left = size

    def _read_trailers(self, last_size_end: int) -> bool:
        """Leave out what follows the last chunk, up to an empty line."""
        end = self._buffer.find(b"\r\n\r\n", last_size_end)
        if end < 0:
            return False
        del self._buffer[: end + 4]
        return True

    def _take(self, count: int) -> None:
        if count:
            self._parts.append(bytes(self._buffer[:count]))
            del self._buffer[:count]


def _size(text: str, base: int) -> int:
    """Return a number of bytes; Python would take signs and underscores too."""
    if not text.isalnum():
        raise ValueError(f"a size is {text[:20]!r}")
    return int(text, base)


def _header_lines(headers: Mapping[str, str]) -> str:
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if (
        text.count("\r\n") != len(headers)
        or text.count("\n") != len(headers)
        or text.count("\r") != len(headers)
    ):
        raise ValueError("a header has an end of line in it")
    return text
