"""An HTTP/1.1 proxy in front of an API server that makes the failures which networks and servers make.

A fault is a value that a rule returns for a request; :class:`FaultProxy` carries it out. Requests go on to
the server over a pool of their own, so a connection that is cut here stays whole there: what a server has
begun to do it does. While the server is *away*, connections are refused, or accepted and left without an
answer; what hangs goes on when the server is back, requests that their sender has long given up included.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from gangline.kube.config import Connection
from gangline.kube.connections import Connections
from gangline.kube.credentials import read_credential
from gangline.kube.http_connection import Answer as UpstreamAnswer
from gangline.kube.stream import LineSplitter
from gangline.kube.transport import endpoint

_HOP_HEADERS = {"connection", "content-length", "transfer-encoding", "host", "keep-alive"}
_PLAIN = {"accept-encoding": "identity"}
"""What passes through is read here, too."""

GONE_LOOK_S = 0.2
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and self.query.get("watch") == "true"

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and "limit" in self.query

    @property
    def is_write(self) -> bool:
        return self.method in WRITES

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the server's place, who does not hear of the request."""

    status: int
    reason: str = ""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Pass the request on after a while."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Let the server do it, and close the connection without a word."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """Let the server do it, and close the connection in the middle of the answer."""


@dataclass(frozen=True, slots=True)
class CutAfter:
    """End a watch after so many events; ``cleanly`` as a server ends it, else with half an event more."""

    events: int
    cleanly: bool = True


@dataclass(frozen=True, slots=True)
class WatchError:
    """Send an ERROR event in place of a watch's first event."""

    status: int
    reason: str


Fault = Answer | Late | Lost | Truncated | CutAfter | WatchError
Rule = Callable[[Request], Fault | None]


@dataclass
class FaultProxy:
    """A proxy for one upstream connection.

    Attributes:
        upstream: the server.
        rule: what is to go wrong with a request; None for nothing.
        counts: requests by name of the fault, ``passed`` for none.
        seen: called with each request before anything else, and after the server has done it.
    """

    upstream: Connection
    rule: Rule = lambda request: None
    counts: Counter[str] = field(default_factory=Counter)
    seen: Callable[[Request, bool], None] = lambda request, is_done: None
    port: int = 0

    def __post_init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: Connections | None = None

    def connection(self) -> Connection:
        """Return how clients reach the proxy: as whom they were before."""
        return msgspec.structs.replace(self.upstream, server=f"http://127.0.0.1:{self.port}", ca_data=None)

    async def start(self) -> None:
        credential = await read_credential(self.upstream)
        self._connections = Connections(endpoint(self.upstream, credential), {}, idle_s=60)
        await self._listen()

    async def stop(self) -> None:
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._connections
        self._connections.close()

    async def refuse(self) -> None:
        """Be away: cut all connections and refuse new ones."""
        assert self._server
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def hang(self) -> None:
        """Be away: take connections and requests, and let everything wait."""
        self._open.clear()

    async def come_back(self) -> None:
        """Serve again, at the same port."""
        self._open.set()
        if self._server is None or not self._server.is_serving():
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the stop of the proxy; asyncio's own callback would print it
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False when the connection is to be closed."""
        request = await _read_request(reader)
        await self._open.wait()
        self.seen(request, False)
        fault = self.rule(request)
        self.counts[type(fault).__name__ if fault else "passed"] += 1
        match fault:
            case Answer():
                return await _write_answer(writer, fault)
            case Late():
                await asyncio.sleep(fault.delay_s)
        headers = {k: v for k, v in request.headers.items() if k not in _HOP_HEADERS} | _PLAIN
        assert self._connections
        answer = await self._connections.request(
            request.method, request.path, urlencode(request.query), headers, request.body or None
        )
        try:
            if request.is_watch and answer.status == 200:
                return await _while_read(reader, self._stream(answer, writer, fault))
            body = await answer.read()
        finally:
            answer.close()
        self.seen(request, True)
        await self._open.wait()
        if isinstance(fault, Lost):
            return False
        head = _head(answer.status, answer.headers, f"Content-Length: {len(body)}")
        if isinstance(fault, Truncated):
            writer.write(head + body[: len(body) // 2])
            await writer.drain()
            writer.close()
            return False
        writer.write(head + body)
        await writer.drain()
        return True

    async def _stream(
        self, answer: UpstreamAnswer, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> bool:
        writer.write(_head(200, answer.headers, "Transfer-Encoding: chunked"))
        if isinstance(fault, WatchError):
            writer.write(_chunk(_error_event(fault)) + b"0\r\n\r\n")
            await writer.drain()
            return True
        left = fault.events if isinstance(fault, CutAfter) else -1
        await writer.drain()
        # Lines are passed on whole, so that a cut is where it is meant to be.
        splitter = LineSplitter()
        async for piece in answer.pieces():
            for line in splitter.feed(piece):
                await self._open.wait()
                writer.write(_chunk(line + b"\n"))
                left -= b'"BOOKMARK"' not in line[:40]
                if left == 0:
                    assert isinstance(fault, CutAfter)
                    writer.write(b"0\r\n\r\n" if fault.cleanly else _chunk(line[: len(line) // 2]))
                    await writer.drain()
                    return fault.cleanly
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _while_read(reader: asyncio.StreamReader, stream: Coroutine[Any, Any, bool]) -> bool:
    """Stream as long as the client is there: else a killed one's quiet watches stay open at the server."""

    async def until_gone() -> None:
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(GONE_LOOK_S)

    tasks = [asyncio.ensure_future(one) for one in (stream, until_gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return bool(tasks[0].done() and tasks[0].result())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
    return Request(method, url.path, query, headers, body)


async def _write_answer(writer: asyncio.StreamWriter, fault: Answer) -> bool:
    body = json.dumps(_status(fault.status, fault.reason)).encode()
    more = [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    if fault.retry_after_s is not None:
        more.append(f"Retry-After: {fault.retry_after_s}")
    writer.write(_head(fault.status, {}, *more) + body)
    await writer.drain()
    return True


def _status(code: int, reason: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"a fault made by the test: {code}",
        "reason": reason,
        "code": code,
    }


def _error_event(fault: WatchError) -> bytes:
    return json.dumps({"type": "ERROR", "object": _status(fault.status, fault.reason)}).encode() + b"\n"


def _head(status: int, headers: Any, *more: str) -> bytes:
    kept = [f"{key}: {value}" for key, value in headers.items() if key.lower() not in _HOP_HEADERS]
    return "\r\n".join([f"HTTP/1.1 {status} x", *kept, *more, "", ""]).encode("latin-1")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def faulty(upstream: Connection, rule: Rule) -> AsyncIterator[FaultProxy]:
    """Run a proxy for as long as the block lasts."""
    proxy = FaultProxy(upstream, rule)
    await proxy.start()
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            await proxy.stop()


# The rules of the tests. Each keeps its own random numbers, so a seed says what happens.


def nothing() -> Rule:
    return lambda request: None


def a_tenth(fault: Fault, seed: int) -> Rule:
    """Have a tenth of all requests fail, watches included."""
    chance = random.Random(seed)
    return lambda request: fault if chance.random() < 0.1 else None


def every_watch_cut(*, cleanly: bool) -> Rule:
    return lambda request: CutAfter(1, cleanly) if request.is_watch else None


def versions_too_old() -> Rule:
    """Refuse every second list and every second page with 410; end every other watch with an ERROR of 410."""
    calls: Counter[tuple[str, str]] = Counter()

    def rule(request: Request) -> Fault | None:
        kind = "watch" if request.is_watch else "list" if request.is_list else ""
        if not kind:
            return None
        if request.query.get("continue"):
            return Answer(410, "Expired")
        calls[kind, request.path] += 1
        if calls[kind, request.path] % 2 == 0:
            return None
        return WatchError(410, "Expired") if request.is_watch else Answer(410, "Expired")

    return rule


def slow(seed: int) -> Rule:
    chance = random.Random(seed)
    return lambda request: None if request.is_watch else Late(chance.choice([0.0, 0.01, 0.1, 0.3]))


def answers_cut_short(seed: int) -> Rule:
    """Cut a fifth of all answers in the middle."""
    chance = random.Random(seed)
    return lambda request: Truncated() if not request.is_watch and chance.random() < 0.2 else None


def answers_lost(seed: int) -> Rule:
    """Do a third of all writes, and close the connection in place of an answer."""
    chance = random.Random(seed)
    return lambda request: Lost() if request.is_write and chance.random() < 0.33 else None
