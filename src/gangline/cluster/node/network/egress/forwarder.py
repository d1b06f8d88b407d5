"""The pods' name server: one on the bridge's address, for UDP and TCP, that answers for the cluster's names.

Everything else is passed on, as it came, to the name servers of the machine's ``/etc/resolv.conf``, one after
the other. It asks from the machine itself, so that a server on loopback (a stub of systemd, dnsmasq) is
reached as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.cluster.node.network.egress.dns_message import (
    SERVER_FAILURE,
    Question,
    read_question,
    write_answer,
)

PORT = 53
SERVER_TIMEOUT_S = 1.5
"""For one name server; three take less than the five seconds for which the C library waits."""
SILENCE_S = 5.0
"""When no name server has answered, and none did for so long, questions are refused at once for so long."""
AT_A_TIME_MAX = 128
"""Questions that are being asked; each holds a socket. Others wait for their turn."""
WAITING_MAX = 1024
WAITING_OF_ONE_POD_MAX = 512
CONNECTIONS_MAX = 64
IDLE_S = 10.0
"""A TCP connection without a question for so long is closed."""

_MESSAGE_BYTES_MAX = 65535

Answer = Callable[[Question, str], bytes | None]


@dataclass
class Upstream:
    """The name servers to ask, and how they have been lately.

    Attributes:
        servers: returns their addresses.
        port: theirs.
    """

    servers: Callable[[], Sequence[str]]
    port: int = PORT
    answered_at: float = float("-inf")
    silent_until: float = float("-inf")

    async def ask(self, question: Question, message: bytes, *, stream: bool) -> bytes:
        """Return the answer of the first name server that gives one, else one that says that none did."""
        if time.monotonic() >= self.silent_until:
            ask = _ask_stream if stream else _ask_datagram
            for server in self.servers():
                with contextlib.suppress(OSError, TimeoutError, EOFError):
                    async with asyncio.timeout(SERVER_TIMEOUT_S):
                        answer = await ask(server, self.port, message)
                    self.answered_at = time.monotonic()
                    return answer
            now = time.monotonic()
            if now - self.answered_at > SILENCE_S:
                self.silent_until = now + SILENCE_S
        return write_answer(question, code=SERVER_FAILURE, authoritative=False)


class Forwarder:
    """See the module's text.

    Args:
        address: to listen on.
        subnet: addresses of those who may ask.
        answer: returns what is known here, given a question and who asks; None for what is to be passed on.
        upstream: whom to pass it on to.
        port: to listen on.
    """

    def __init__(
        self,
        address: str,
        subnet: ipaddress.IPv4Network,
        answer: Answer,
        upstream: Upstream,
        port: int = PORT,
    ) -> None:
        self._address = address
        self._port = port
        self._subnet = subnet
        self._answer = answer
        self._upstream = upstream
        self._turns = asyncio.Semaphore(AT_A_TIME_MAX)
        self._waiting: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: another program listens there.
        """
        loop = asyncio.get_running_loop()
        place = (self._address, self._port)
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=place)
        try:
            self._server = await asyncio.start_server(self._serve_stream, *place, backlog=CONNECTIONS_MAX)
        except OSError:
            self._transport.close()
            raise

    async def close(self) -> None:
        """Stop listening; questions that are being asked are dropped."""
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take(self, message: bytes, source: tuple[str, int]) -> None:
        """Take a datagram."""
        asker = source[0]
        question = self._question(message, asker)
        if question is None or self._transport is None:
            return
        answer = self._answer(question, asker)
        if answer is None and self._is_crowded(asker):
            answer = write_answer(question, code=SERVER_FAILURE, authoritative=False)
        if answer is not None:
            self._transport.sendto(answer, source)
            return
        task = asyncio.create_task(self._pass_on(question, message, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, question: Question, message: bytes, source: tuple[str, int]) -> None:
        answer = await self._ask(question, message, source[0], stream=False)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(answer, source)

    async def _ask(self, question: Question, message: bytes, asker: str, *, stream: bool) -> bytes:
        self._waiting[asker] += 1
        try:
            async with self._turns:
                return await self._upstream.ask(question, message, stream=stream)
        finally:
            self._waiting[asker] -= 1
            if not self._waiting[asker]:
                del self._waiting[asker]

    def _is_crowded(self, asker: str) -> bool:
        return self._waiting[asker] >= WAITING_OF_ONE_POD_MAX or self._waiting.total() >= WAITING_MAX

    def _question(self, message: bytes, asker: str) -> Question | None:
        # The bridge's own address asks too: it is how the machine looks names of pods up.
        return read_question(message) if ipaddress.IPv4Address(asker) in self._subnet else None

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asker = writer.get_extra_info("peername")[0]
        self._connections += 1
        try:
            while self._connections <= CONNECTIONS_MAX:
                async with asyncio.timeout(IDLE_S):
                    message = await _read_message(reader)
                question = self._question(message, asker)
                if question is None:
                    return
                answer = self._answer(question, asker)
                if answer is None and self._is_crowded(asker):
                    return
                if answer is None:
                    answer = await self._ask(question, message, asker, stream=True)
                writer.write(struct.pack("!H", len(answer)) + answer)
                async with asyncio.timeout(IDLE_S):
                    await writer.drain()
        except (OSError, EOFError, TimeoutError):
            return
        finally:
            self._connections -= 1
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self._forwarder.take(data, addr)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!H", await reader.readexactly(2))
    return await reader.readexactly(length)


async def _ask_stream(server: str, port: int, message: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, port)
    try:
        writer.write(struct.pack("!H", len(message)) + message)
        await writer.drain()
        return await _read_message(reader)
    finally:
        writer.close()


async def _ask_datagram(server: str, port: int, message: bytes) -> bytes:
    """Ask from a socket of its own: its port, drawn by the kernel, is what a forger would have to guess."""
    loop = asyncio.get_running_loop()
    found = socket.getaddrinfo(server, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    family, _, _, _, place = found[0]
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as own:
        own.connect(place)
        await loop.sock_sendall(own, message)
        while True:
            answer = await loop.sock_recv(own, _MESSAGE_BYTES_MAX)
            if answer[:2] == message[:2]:
                return answer
