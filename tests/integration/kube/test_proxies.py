"""A proxy between client and server: tunnels to https, whole URLs to http, user and password, refusals."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tls_server import TlsServer, make_pair

from gangline.api.resources import PODS
from gangline.kube import errors
from gangline.kube.client import Client
from gangline.kube.config import Connection

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Proxy:
    """Tunnels on CONNECT; answers whole URLs itself.

    Attributes:
        heads: of the requests that came.
        refusal: what every request is answered with, if anything.
    """

    def __init__(self) -> None:
        self.heads: list[list[str]] = []
        self.refusal = b""
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                self.heads.append(head)
                method, target, _ = head[0].split()
                if self.refusal:
                    writer.write(self.refusal)
                elif method == "CONNECT":
                    await self._tunnel(target, reader, writer)
                    break
                else:
                    lengths = [line.split()[1] for line in head if line.startswith("Content-Length: ")]
                    await reader.readexactly(int(lengths[0]) if lengths else 0)
                    writer.write(OK)
        writer.close()

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        to_server, from_client = await asyncio.open_connection(host, int(port))
        self._writers.append(from_client)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pass(reader, from_client), self._pass(to_server, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    yield proxy
    proxy.close()
    listening.close()


async def no_sleep(_delay_s: float) -> None:
    return


async def read_and_write(connection: Connection) -> None:
    async with Client(connection, sleep=no_sleep) as client:
        await client.get(PODS, "a")
        await client.patch(PODS, "a", {})


async def test_reads_and_writes_share_a_tunnel_to_an_https_server(proxy: Proxy, tls: TlsServer) -> None:
    url = f"http://user:p%40ss@127.0.0.1:{proxy.port}"
    await read_and_write(Connection(server=tls.url, ca_data=tls.authority, token="t", proxy_url=url))

    authority = tls.url.removeprefix("https://")
    assert proxy.heads == [
        [
            f"CONNECT {authority} HTTP/1.1",
            f"Host: {authority}",
            "Proxy-Authorization: Basic dXNlcjpwQHNz",  # user:p@ss
        ]
    ]
    assert tls.seen == [("Bearer t", "")] * 2


async def test_the_proxy_is_trusted_with_nothing_of_an_https_server(proxy: Proxy, tls: TlsServer) -> None:
    other, _ = make_pair("other CA")
    connection = Connection(
        server=tls.url, ca_data=other.certificate, proxy_url=f"http://127.0.0.1:{proxy.port}"
    )
    with pytest.raises(errors.Unavailable) as caught:
        await read_and_write(connection)

    assert "CA" in caught.value.hint
    assert tls.seen == []


async def test_a_tunnel_goes_through_a_proxy_that_speaks_tls(
    tmp_path: Path,
    tls: TlsServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = Proxy()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")  # of the server, which has the address of the proxy too
    (tmp_path / "ca.pem").write_bytes(tls.authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]

    await read_and_write(
        Connection(server=tls.url, ca_data=tls.authority, proxy_url=f"https://127.0.0.1:{port}")
    )

    assert len(tls.seen) == 2
    proxy.close()
    listening.close()


async def test_a_proxy_is_asked_for_whole_urls_of_an_http_server(proxy: Proxy) -> None:
    url = f"http://u:p@127.0.0.1:{proxy.port}"
    await read_and_write(Connection(server="http://api.example:8080/prefix", proxy_url=url))

    path = "http://api.example:8080/prefix/api/v1/namespaces/default/pods/a"
    assert [head[0] for head in proxy.heads] == [f"GET {path} HTTP/1.1", f"PATCH {path} HTTP/1.1"]
    assert all("Host: api.example:8080" in head for head in proxy.heads)
    assert all("Proxy-Authorization: Basic dTpw" in head for head in proxy.heads)


async def test_a_proxy_that_refuses_is_told(proxy: Proxy, tls: TlsServer) -> None:
    proxy.refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    connection = Connection(server=tls.url, ca_data=tls.authority, proxy_url=f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(errors.Unavailable, match=r"proxy 127\.0\.0\.1 answered with status 407"):
        await read_and_write(connection)


async def test_the_proxy_of_the_environment_is_used_where_it_is_not_bypassed(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", "inner.example")
    await read_and_write(Connection(server="http://outer.invalid"))
    assert len(proxy.heads) == 2

    with pytest.raises(errors.Unavailable):
        await read_and_write(Connection(server="http://inner.invalid", proxy_url="http://127.0.0.1:1"))
    monkeypatch.setenv("no_proxy", "outer.invalid")
    with pytest.raises(errors.Unavailable):
        await read_and_write(Connection(server="http://outer.invalid"))
    assert len(proxy.heads) == 2


@pytest.mark.parametrize("url", ["socks5://127.0.0.1:1080", "http://", "http://host:six", "nonsense"])
async def test_what_is_no_http_proxy_is_refused(url: str) -> None:
    with pytest.raises(errors.KubeconfigError, match="is no HTTP proxy"):
        await read_and_write(Connection(server="https://host", proxy_url=url))
