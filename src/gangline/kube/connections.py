"""The connections to one server, kept for the next request: over TCP, TLS, a proxy or a Unix socket.

Redirects, cookies and HTTP/2 are left out: API servers need none of them. Why this and not a client library:
docs/decisions/0011-one-transport.md.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

import msgspec

from gangline.kube.http_connection import Answer, ClosedUnanswered, HttpConnection
from gangline.kube.socket_owner import ForeignSocketError, check_folder, check_peer

next_address_after_s = 0.25
"""A host's next address is tried beside one that has not answered for so long (RFC 8305, section 5)."""

_PATH_SAFE = "/:@!$&'()*+,;=~%"
_PORTS = {"http": 80, "https": 443}


class NotConnected(OSError):
    """No connection came about: the server has not seen the request."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a server is.

    Attributes:
        url: ``http`` or ``https``, with a path to be put before every other if it has one.
        socket: path of a Unix socket, in place of the host's address.
        tls: for ``https``.
        server_name: what the certificate must name, where that is not the host.
        proxy: URL of an HTTP proxy on the way, with user and password if it asks for them.
        connect_timeout_s: time to open a connection, proxy and TLS included.
    """

    url: str
    socket: str = ""
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    proxy: str = ""
    connect_timeout_s: float = 10.0


class Connections:
    """Connections to one server; idle ones are used again, the last first.

    Args:
        endpoint: of the server.
        headers: of every request.
        idle_s: a connection that was idle for longer is not used again.
    """

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], *, idle_s: float) -> None:
        url, self._proxy = urlsplit(endpoint.url), urlsplit(endpoint.proxy)
        self._endpoint = endpoint
        self._host, self._port = _address(url)
        self._prefix = url.path.rstrip("/")
        netloc = url.netloc.rpartition("@")[2]
        headers = {"Host": netloc, **headers}
        if endpoint.proxy and not endpoint.tls:  # RFC 9112, section 3.2.2: a proxy is asked for the whole URL
            self._prefix = f"http://{netloc}{self._prefix}"
            headers |= self._proxy_headers()
        self._headers = _header_lines(tuple(headers.items()))
        self._idle_s = idle_s
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._is_closed = False

    async def request(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """Send a request and return its answer, whose body may still come.

        Nothing is sent twice, but a GET on a kept connection that the server closed before it answered. A
        cancelled request closes its connection.

        Raises:
            NotConnected: the server has not seen it.
            OSError: it may have.
        """
        request = self._bytes_of(method, path, query, headers, body)
        upgrades = "Upgrade" in headers
        if (kept := self._take_idle()) is not None:
            try:
                return await kept.exchange(request, upgrades=upgrades)
            except ClosedUnanswered:
                if method != "GET":
                    raise
        return await (await self._connect()).exchange(request, upgrades=upgrades)

    async def request_all(
        self, method: str, requests: Sequence[tuple[str, bytes]], headers: Mapping[str, str], until_s: float
    ) -> list[tuple[Answer, bytes] | OSError]:
        """Send requests, each a path and a body, at once; return answers with their bodies, or what failed.

        Nothing is sent twice. After ``until_s``, a time of the event loop, answers are waited for no longer.
        """
        begun: list[Answer | OSError] = []
        ended: list[tuple[Answer, bytes] | OSError] = []
        try:
            async with asyncio.timeout_at(until_s):
                for path, body in requests:
                    begun.append(await self._begin(self._bytes_of(method, path, "", headers, body)))
                for answer in begun:
                    ended.append(await _read(answer) if isinstance(answer, Answer) else answer)
        except TimeoutError as error:
            ended += [error] * (len(requests) - len(ended))
        finally:
            for answer in begun:
                if isinstance(answer, Answer):
                    answer.close()
        return ended

    async def _begin(self, request: bytes) -> Answer | OSError:
        try:
            return (self._take_idle() or await self._connect()).begin(request)
        except OSError as error:
            return error

    def _bytes_of(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        target = self._prefix + quote(path, safe=_PATH_SAFE) + (f"?{query}" if query else "")
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}{_header_lines(tuple(headers.items()))}"
        length = f"Content-Length: {len(body or b'')}\r\n" if method != "GET" else ""
        return f"{head}{length}\r\n".encode() + (body or b"")

    def close(self) -> None:
        """Close all connections, one that is about to open too; running requests fail."""
        self._is_closed = True
        for connection in list(self._open):
            connection.close()

    def _take_idle(self) -> HttpConnection | None:
        oldest_s = asyncio.get_running_loop().time() - self._idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.used_s >= oldest_s:
                return connection
            connection.close()
        return None

    def _make(self) -> HttpConnection:
        return HttpConnection(self._open.add, self._idle.append, self._open.discard)

    async def _connect(self) -> HttpConnection:
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(endpoint.connect_timeout_s):
                if endpoint.socket:
                    connection = await self._connect_socket(endpoint.socket)
                elif not endpoint.proxy:
                    connection = await self._connect_host(
                        self._host, self._port, endpoint.tls, endpoint.server_name
                    )
                elif endpoint.tls:
                    connection = await self._connect_tunnel(endpoint.tls)
                else:
                    connection = await self._connect_proxy()
        except TimeoutError as error:
            raise NotConnected(f"no connection within {endpoint.connect_timeout_s:g} s") from error
        except OSError as error:  # errors of TLS are among them
            raise NotConnected(str(error) or type(error).__name__) from error
        if self._is_closed:
            connection.close()
            raise NotConnected("the client is closed")
        return connection

    async def _connect_socket(self, path: str) -> HttpConnection:
        check_folder(Path(path))
        transport, connection = await asyncio.get_running_loop().create_unix_connection(self._make, path)
        try:
            check_peer(transport.get_extra_info("socket"), path)
        except ForeignSocketError:
            connection.close()
            raise
        return connection

    async def _connect_host(
        self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = ""
    ) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            self._make,
            host,
            port,
            ssl=tls,
            server_hostname=(server_name or host) if tls else None,
            happy_eyeballs_delay=next_address_after_s,
        )
        return connection

    async def _connect_proxy(self) -> HttpConnection:
        tls = ssl.create_default_context() if self._proxy.scheme == "https" else None
        return await self._connect_host(*_address(self._proxy), tls)

    async def _connect_tunnel(self, tls: ssl.SSLContext) -> HttpConnection:
        """Have the proxy pass bytes on (RFC 9110, section 9.3.6), and speak TLS with the server behind it."""
        to_proxy = await self._connect_proxy()
        try:
            authority = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
            headers = _header_lines((("Host", authority), *self._proxy_headers().items()))
            answer = await to_proxy.exchange(f"CONNECT {authority} HTTP/1.1\r\n{headers}\r\n".encode())
            if answer.status != 200:
                raise NotConnected(f"proxy {self._proxy.hostname} answered with status {answer.status}")
            through = self._make()
            name = self._endpoint.server_name or self._host
            await to_proxy.hand_over(through, tls, name)
        except BaseException:
            to_proxy.close()
            raise
        return through

    def _proxy_headers(self) -> dict[str, str]:
        if not self._proxy.username:
            return {}
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


async def _read(answer: Answer) -> tuple[Answer, bytes] | OSError:
    try:
        return answer, await answer.read()
    except OSError as error:
        return error


def _address(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or _PORTS.get(url.scheme, 80)


@lru_cache
def _header_lines(headers: tuple[tuple[str, str], ...]) -> str:
    text = "".join(f"{name}: {value}\r\n" for name, value in headers)
    if not text.count("\r\n") == text.count("\n") == text.count("\r") == len(headers):
        raise ValueError("a header has an end of line in it")
    return text
