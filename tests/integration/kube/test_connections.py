"""Kept connections: framing of answers as RFC 9112 has it, and what becomes of a connection after each."""

from __future__ import annotations

import asyncio
import gzip
import select
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from gangline.kube import errors
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.connections import Connections, Endpoint, NotConnected
from gangline.kube.http_connection import BadAnswer, gathered_after

WAIT_S = 10.0
PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\n{'a':\r\nb;x=y\r\n'\r\n\r\n0\r\n\r\n'\r\n0\r\nTrailer: t\r\n\r\n"
)


class Server:
    """Answers every request with the next bytes that the test gave; empty ones close the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.cut = 1 << 20

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
                self.requests.append(head + await reader.readexactly(int(length.split()[1])))
                answer = self.answers.pop(0)
                for start in range(0, len(answer), self.cut):
                    writer.write(answer[start : start + self.cut])
                    await writer.drain()
                    await asyncio.sleep(0)
                if not answer or b"HTTP/1.0" in answer or b"close" in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_unix_server(server.serve, tmp_path / "socket")
    yield server
    listening.close()


@pytest.fixture
async def connections(server: Server, tmp_path: Path) -> AsyncIterator[Connections]:
    endpoint = Endpoint("http://localhost/prefix", socket=str(tmp_path / "socket"))
    connections = Connections(endpoint, {"User-Agent": "tests"}, idle_s=60.0)
    yield connections
    connections.close()


class Whole(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def post(connections: Connections, path: str = "/a", query: str = "") -> Whole:
    async with asyncio.timeout(WAIT_S):
        answer = await connections.request("POST", path, query, {"X-One": "1"}, b"{}")
        return Whole(answer.status, dict(answer.headers), await answer.read())


async def test_a_request_is_sent_as_http_with_prefix_query_headers_and_length(
    server: Server, connections: Connections
) -> None:
    server.answers = [PLAIN]

    answer = await post(connections, "/api/v1/pods/ä b?", "dryRun=All")

    assert (answer.status, answer.body, answer.headers) == (201, b"{}", {"content-length": "2"})
    assert server.requests == [
        b"POST /prefix/api/v1/pods/%C3%A4%20b%3F?dryRun=All HTTP/1.1\r\nHost: localhost\r\n"
        b"User-Agent: tests\r\nX-One: 1\r\nContent-Length: 2\r\n\r\n{}"
    ]


@pytest.mark.parametrize("cut", [1, 3, 1000])
async def test_answers_are_read_however_they_are_cut(
    server: Server, connections: Connections, cut: int
) -> None:
    server.cut = cut
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    none, of_get = (
        b"HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n" % what for what in (b"204 N", b"304 N")
    )
    server.answers = [PLAIN, CHUNKED, interim + PLAIN, none, of_get, PLAIN]

    bodies = [(await post(connections)).body for _ in range(6)]

    assert bodies == [b"{}", b"{'a':'\r\n\r\n0\r\n\r\n'", b"{}", b"", b"", b"{}"]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (PLAIN + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"{}"),
    ],
)
async def test_a_connection_that_cannot_be_trusted_again_is_not_used_again(
    server: Server, connections: Connections, answer: bytes, body: bytes
) -> None:
    server.answers = [answer, PLAIN]

    assert (await post(connections)).body == body
    assert (await post(connections)).body == b"{}"
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
async def test_half_an_answer_and_what_is_none_are_errors_and_the_next_request_goes_through(
    server: Server, connections: Connections, answer: bytes
) -> None:
    server.answers = [answer, PLAIN]

    with pytest.raises((BadAnswer, ConnectionError)):
        await post(connections)
    assert (await post(connections)).body == b"{}"


async def test_a_cancelled_request_does_not_leave_its_answer_to_the_next(
    server: Server, connections: Connections
) -> None:
    is_asked = asyncio.Event()
    server.answers = [PLAIN]
    await post(connections)

    class Held(list[bytes]):
        def pop(self, *_: object) -> bytes:
            is_asked.set()
            return b"HTTP/1.1 200 OK\r\n"

    server.answers = Held()
    request = asyncio.create_task(post(connections))
    await is_asked.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    server.answers = [PLAIN]

    assert (await post(connections)).body == b"{}"
    assert server.connections == 2


async def test_a_connection_that_opens_after_the_close_sends_nothing(
    server: Server, connections: Connections
) -> None:
    request = asyncio.create_task(post(connections))
    await asyncio.sleep(0)  # it has begun to connect
    connections.close()

    with pytest.raises(NotConnected, match="closed"):
        await request
    assert server.requests == []


async def test_an_address_that_does_not_answer_does_not_hold_up_the_next(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    connect = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "192.0.2.1":  # nobody's, RFC 5737
            await asyncio.Event().wait()
        await connect(sock, address)

    async def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        hosts = ("192.0.2.1", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("gangline.kube.connections.next_address_after_s", 0.001)
    server.answers = [PLAIN]
    two = Connections(Endpoint(f"http://two.example:{port}"), {}, idle_s=60.0)

    assert (await post(two)).status == 201
    two.close()
    listening.close()


async def test_nobody_there_is_told_apart_from_no_answer(tmp_path: Path) -> None:
    nobody = Connections(Endpoint("http://localhost", socket=str(tmp_path / "none")), {}, idle_s=60.0)

    with pytest.raises(NotConnected):
        await post(nobody)


async def test_a_header_cannot_bring_another(connections: Connections) -> None:
    with pytest.raises(ValueError, match="end of line"):
        await connections.request("POST", "/", "", {"X": "a\r\nY: b"}, b"")


async def test_gzip_is_unpacked_and_cut_gzip_is_an_error(server: Server, connections: Connections) -> None:
    packed = gzip.compress(b"x" * 100_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    server.cut = 50
    server.answers = [head % len(packed) + packed, head % 20 + packed[:20], head % 3 + b"abc"]

    assert (await post(connections)).body == b"x" * 100_000
    with pytest.raises(BadAnswer, match="ends too early"):
        await post(connections)
    with pytest.raises(BadAnswer, match="cannot be decompressed"):
        await post(connections)


async def test_an_unknown_encoding_is_an_error_and_its_connection_is_not_used_again(
    server: Server, connections: Connections
) -> None:
    server.answers = [b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", PLAIN]

    with pytest.raises(BadAnswer, match="unknown encoding `br`"):
        await post(connections)
    assert (await post(connections)).body == b"{}"
    assert server.connections == 2


async def test_pieces_of_a_busy_stream_are_taken_together_after_the_first_ones(
    server: Server, connections: Connections
) -> None:
    body = bytes(range(256)) * 8
    server.cut = 4
    server.answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    answer = await connections.request("POST", "/a", "", {})

    async with asyncio.timeout(WAIT_S):
        pieces = [piece async for piece in answer.pieces(gather_s=0.02)]

    assert b"".join(pieces) == body
    assert gathered_after < len(pieces) < 128  # of 512 that the server sends


async def test_a_reader_that_goes_away_after_the_last_piece_leaves_its_connection_to_others(
    server: Server, connections: Connections
) -> None:
    body = bytes(range(256))
    server.cut = 4
    server.answers += [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body, PLAIN]
    answer = await connections.request("POST", "/a", "", {})

    async def read() -> None:
        async for _ in answer.pieces(gather_s=0.5):
            pass

    reading = asyncio.create_task(read())
    async with asyncio.timeout(WAIT_S):
        while not answer._is_whole:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # it takes the last piece
        reading.cancel()
        await asyncio.wait([reading])
        assert await (await connections.request("POST", "/b", "", {})).read() == b"{}"
    assert server.connections == 1


async def test_a_slow_reader_makes_the_server_wait_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.kube.http_connection.buffered_bytes_max", 1000)
    total, sent, is_stuck = 8 << 20, 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(b"x" * 65536)
            sent += 65536
            draining = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait([draining], timeout=0.2))[0]:
                is_stuck.set()
            await draining

    listening = await asyncio.start_unix_server(serve, tmp_path / "socket")
    connections = Connections(Endpoint("http://x", socket=str(tmp_path / "socket")), {}, idle_s=60.0)
    async with asyncio.timeout(WAIT_S):
        answer = await connections.request("GET", "/", "", {})
        await is_stuck.wait()
        assert sent < total
        assert len(await answer.read()) == total
    connections.close()
    listening.close()


class Closer:
    """Answers the first request of each connection, and closes at a moment that the test names."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        with suppress(asyncio.IncompleteReadError):
            await self._read(reader)
            if not is_first or self.moment != "after the first request":
                writer.write(PLAIN)
            while not is_first:
                await self._read(reader)
                writer.write(PLAIN)
            if self.moment == "after the second request":
                await self._read(reader)
        writer.close()
        await writer.wait_closed()
        self.closed.set()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head + await reader.readexactly(2 * (b"Content-Length: 2" in head)))


@pytest.mark.parametrize("moment", ["after the first request", "after the second request", "while idle"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_write_is_never_sent_twice(tmp_path: Path, moment: str, method: str) -> None:
    closer = Closer(moment)
    listening = await asyncio.start_unix_server(closer.serve, tmp_path / "socket")

    async def send() -> str:
        try:
            await client.request(method, "/api", body={} if method == "POST" else None)
        except errors.Unavailable:
            return "failed"
        return "answered"

    async with (
        asyncio.timeout(WAIT_S),
        Client(Connection(server=f"unix://{tmp_path}/socket")) as client,
    ):
        first = await send()
        if moment == "while idle":
            await closer.closed.wait()
            await asyncio.sleep(0)
        second = await send()
    listening.close()

    sent = len(closer.requests)
    if method == "GET" or moment == "while idle":  # which the client sees before it sends
        assert (first, second) == ("answered", "answered")
        assert sent == (2 if moment == "while idle" else 3)
    elif moment == "after the first request":
        assert (first, second, sent) == ("failed", "answered", 2)
    else:
        assert (first, second, sent) == ("answered", "failed", 2)


async def test_a_write_on_a_connection_that_is_reset_unread_is_not_sent_again(tmp_path: Path) -> None:
    """The client cannot tell whether the server had read it."""
    accepted = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(PLAIN)
        writer.transport.pause_reading()

    listening = await asyncio.start_unix_server(serve, tmp_path / "socket")
    async with (
        asyncio.timeout(WAIT_S),
        Client(Connection(server=f"unix://{tmp_path}/socket")) as client,
    ):
        await client.request("POST", "/api", body={})
        writing = asyncio.create_task(client.request("POST", "/api", body={}))
        while not select.select([accepted[0].get_extra_info("socket").fileno()], [], [], 0)[0]:
            await asyncio.sleep(0)
        accepted[0].transport.abort()
        with pytest.raises(errors.Unavailable):
            await writing

        assert client.answers() == {("POST", "201"): 1, ("POST", "error"): 1}
    assert len(accepted) == 1
    listening.close()
