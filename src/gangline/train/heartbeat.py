"""Heartbeats between ranks, one datagram each: they reach the watchers whatever has become of the store.

The store lies with rank 0 and answers nobody once that is stopped. A datagram needs no answer, blocks no
thread, and waits in the receiver's socket while that is stopped itself. Where datagrams do not pass, the
heartbeats in the store are left.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

BEAT_BYTES_MAX = 1400
"""Fits into one packet of every network."""
STACK_CHARACTERS_MAX = 800
LOOPBACK = "127.0.0.1"

Facts = list[dict[str, Any]]


class HeartbeatSocket:
    """Sends this rank's heartbeats and receives those of others; without a socket it does neither.

    Attributes:
        key: what this rank's heartbeats carry, so that no stranger's are taken for them.
    """

    def __init__(self) -> None:
        self.key = secrets.token_hex(8)
        self._socket: socket.socket | None = None
        with suppress(OSError):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.bind(("", 0))
            self._socket.setblocking(False)

    @property
    def port(self) -> int:
        """Where others send their heartbeats, 0 for nowhere."""
        return int(self._socket.getsockname()[1]) if self._socket else 0

    def send(self, rank: int, beat: dict[str, Any], places: Iterable[tuple[str, int]]) -> None:
        """Send a heartbeat of this rank; one that is lost is followed by the next."""
        beat = beat | {"stack": str(beat.get("stack", ""))[:STACK_CHARACTERS_MAX]}
        data = json.dumps({"rank": rank, "key": self.key, "beat": beat}).encode()
        for place in places:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.sendto(data, place)

    def receive(self, facts: Facts) -> list[tuple[int, dict[str, Any]]]:
        """Return rank and heartbeat of all that came since the last call, in order."""
        found = []
        while self._socket is not None:
            try:
                data = self._socket.recv(BEAT_BYTES_MAX)
            except OSError:
                break
            with suppress(ValueError, KeyError, IndexError, TypeError):
                message = json.loads(data)
                if facts[message["rank"]]["beat_key"] == message["key"]:
                    found.append((int(message["rank"]), dict(message["beat"])))
        return found

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def place_of(facts: Facts, mine: int, rank: int, port: int) -> tuple[str, int] | None:
    """Return where a port of a rank is reached from this one, None where it cannot be.

    Args:
        facts: what every rank said of itself at the start.
        mine: this rank.
        rank: the other one.
        port: of that rank or of its node, 0 for none.
    """
    if facts[mine]["node"] == facts[rank]["node"]:
        return (LOOPBACK, port) if port else None
    addresses = facts[rank]["addresses"]
    return (str(addresses[0]), port) if addresses and port else None
