"""The wire between ranks and the coordinator: one TCP connection for each rank, rank 0 keeps the coordinator.

A message is an integer of bits and a list, in both directions: what a rank is ready for, or what all do next.
Nothing is sent while nothing happens. A connection that ends is a rank that ended, and known at once.
"""

from __future__ import annotations

import hmac
import queue
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from horovod.engine.agreement import LEAVE, Agreement, Request, dump, load_agreements, load_requests
from horovod.engine.negotiation import Coordinator, Decision
from horovod.engine.settings import Settings

CONNECT_TIMEOUT_S = 60.0
LOOK_FOR_STALLS_EVERY_S = 0.5
_HEAD = struct.Struct("!II")
_RANK = struct.Struct("!I")
_TOKEN_BYTES = 32


class Link(Protocol):
    """A rank's way to the coordinator."""

    def send(self, bits: int, requests: Sequence[Request]) -> None:
        """Say what this rank is ready for."""

    def receive(self) -> Decision | None:
        """Wait for what all ranks do next; None when the coordinator has ended."""

    def close(self) -> None:
        """Leave; `receive` returns None from then on."""


def _send(connection: socket.socket, bits: int, data: bytes) -> None:
    known = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    connection.sendall(_HEAD.pack(len(known), len(data)) + known + data)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the other side has ended")
        view = view[received:]
    return bytes(data)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    known, more = _HEAD.unpack(_receive_exactly(connection, _HEAD.size))
    data = _receive_exactly(connection, known + more)
    return int.from_bytes(data[:known], "little"), data[known:]


class CoordinatorServer:
    """Rank 0's side: takes messages of all ranks, tells all what follows.

    Args:
        size: number of ranks.
        address: to listen at; ``""`` for a job of one rank, which needs no socket.
    """

    def __init__(
        self,
        size: int,
        settings: Settings,
        address: str = "",
    ) -> None:
        self._coordinator = Coordinator(size, settings.capacity)
        self._settings = settings
        self._lock = threading.Lock()
        self._own: queue.SimpleQueue[Decision | None] = queue.SimpleQueue()
        self._connections: dict[int, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._closed = False
        self._since: dict[str, float] = {}
        self._warned: set[str] = set()
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        if size > 1:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._listener = socket.create_server((address, 0), family=family, backlog=size)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listener is not None
        return int(self._listener.getsockname()[1])

    def accept(self) -> None:
        """Wait for the connections of all other ranks, then serve them in a thread.

        Raises:
            ConnectionError: a rank did not come in time.
        """
        size = self._coordinator.size
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while self._listener is not None and len(self._connections) < size - 1:
            missing = sorted(set(range(1, size)) - set(self._connections))
            self._listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                raise ConnectionError(f"ranks {missing} did not connect to rank 0's coordinator") from None
            with suppress(OSError):
                connection.settimeout(CONNECT_TIMEOUT_S)
                if not hmac.compare_digest(_receive_exactly(connection, _TOKEN_BYTES), self.token):
                    connection.close()
                    continue
                (rank,) = _RANK.unpack(_receive_exactly(connection, _RANK.size))
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[rank] = connection
        if self._listener is not None:
            self._listener.close()
            threading.Thread(target=self._serve, name="horovod-coordinator", daemon=True).start()

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        for rank, connection in self._connections.items():
            selector.register(connection, selectors.EVENT_READ, rank)
        while selector.get_map() and not self._closed:
            for key, _ in selector.select(LOOK_FOR_STALLS_EVERY_S):
                try:
                    bits, data = _receive(self._connections[key.data])
                    requests = load_requests(data)
                except OSError:
                    selector.unregister(key.fileobj)
                    bits, requests = 0, [Request("ended without leaving the job", LEAVE)]
                self.take(key.data, bits, requests)
            if self._settings.stall_warning_s:
                self._look_for_stalls()
        selector.close()

    def take(self, rank: int, bits: int, requests: Sequence[Request]) -> None:
        """Take a rank's message; any thread may call it."""
        with self._lock:
            if self._closed:
                return
            decision = self._coordinator.receive(rank, bits, requests)
            if decision:
                self._tell(decision)

    def _tell(self, decision: Decision) -> None:
        data = dump(decision.agreements)
        for connection in self._connections.values():
            with suppress(OSError):
                _send(connection, decision.bits, data)
        self._own.put(decision)

    def _look_for_stalls(self) -> None:
        now = time.monotonic()
        with self._lock:
            waiting = self._coordinator.waiting()
        self._since = {name: self._since.get(name, now) for name in waiting}
        self._warned &= set(waiting)
        for name, since in self._since.items():
            waited = now - since
            if waited >= self._settings.stall_warning_s and name not in self._warned:
                self._warned.add(name)
                sys.stderr.write(
                    f"horovod: {name} was submitted by some ranks {waited:.0f} s ago, "
                    f"but not by {waiting[name]}\n"
                )
            if 0 < self._settings.stall_shutdown_s <= waited:
                text = f"did not submit {name} for {waited:.0f} s"
                for rank in waiting[name]:
                    self.take(rank, 0, [Request(text, LEAVE)])

    def link(self) -> Link:
        """Return rank 0's own link."""
        return _OwnLink(self)

    def close(self) -> None:
        """End: every other rank's link ends too."""
        with self._lock:
            self._closed = True
        for connection in self._connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        if self._listener is not None:
            self._listener.close()
        self._own.put(None)

    def next_own(self) -> Decision | None:
        """Wait for rank 0's next decision."""
        return self._own.get()


class _OwnLink:
    def __init__(self, server: CoordinatorServer) -> None:
        self._server = server

    def send(self, bits: int, requests: Sequence[Request]) -> None:
        self._server.take(0, bits, requests)

    def receive(self) -> Decision | None:
        return self._server.next_own()

    def close(self) -> None:
        self._server.close()


class _RemoteLink:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, bits: int, requests: Sequence[Request]) -> None:
        _send(self._connection, bits, dump(requests))

    def receive(self) -> Decision | None:
        try:
            bits, data = _receive(self._connection)
        except OSError:
            return None
        agreements: list[Agreement] = load_agreements(data)
        return Decision(bits, tuple(agreements))

    def close(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def connect(addresses: Sequence[str], port: int, token: bytes, rank: int) -> Link:
    """Connect to rank 0's coordinator at the first of its addresses that answers.

    Raises:
        ConnectionError: none does; the message names them.
    """
    problems: list[str] = []
    for address in addresses:
        try:
            connection = socket.create_connection((address, port), CONNECT_TIMEOUT_S / len(addresses))
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(token + _RANK.pack(rank))
            return _RemoteLink(connection)
        except OSError as error:
            problems.append(f"{address}:{port} ({error})")
    raise ConnectionError(f"rank {rank} cannot reach rank 0's coordinator at {', '.join(problems)}")


def meet(
    rank: int,
    size: int,
    settings: Settings,
    store: Any,
    addresses: Sequence[str],
    listen_at: str,
) -> Link:
    """Return this rank's link; returns when all ranks are connected.

    Args:
        store: that the ranks share.
        addresses: of this rank's host, best first; those of rank 0 count.
        listen_at: address that rank 0 listens at.
    """
    if rank == 0:
        server = CoordinatorServer(size, settings, listen_at)
        if size > 1:
            store.set("coordinator", f"{server.port} {server.token.hex()} {' '.join(addresses)}")
        server.accept()
        return server.link()
    port, token, *hosts = store.get("coordinator").decode().split()
    return connect(hosts, int(port), bytes.fromhex(token), rank)
