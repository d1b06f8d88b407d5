"""How much the server takes on at once: requests, watches, bytes of bodies, and of answers not yet read.

Two shares, so that neither can use up the other's: the Unix socket, on which operator, scheduler, node agent
and the user's own commands ask, and the TCP ports, where pods and kubectl do. Within the second share no
service account has more than a part. Whoever comes too many is told 429 and when to come again, as by the
priority and fairness of a real API server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.auth import Caller
from gangline.cluster.server.memory import ANSWER_BYTES_MAX, BODY_BYTES_MAX, STORE_BYTES_MAX, MemoryShares


@dataclass(frozen=True, slots=True)
class Share:
    """What one share may have under way.

    Attributes:
        requests_max: requests that are no watches.
        watches_max: watches and followed logs.
        answer_bytes_max: bytes of long answers that clients have not taken yet.
        body_bytes_max: bytes of bodies of requests that are under way, and of the objects that they change.
    """

    requests_max: int
    watches_max: int
    answer_bytes_max: int
    body_bytes_max: int


LOCAL: Final = Share(
    requests_max=1_000, watches_max=2_000, answer_bytes_max=1 << 30, body_bytes_max=256 << 20
)
"""Agents create pods by the hundred at once; a command that follows a job has a handful of watches."""

REMOTE: Final = Share(requests_max=200, watches_max=500, answer_bytes_max=256 << 20, body_bytes_max=64 << 20)
"""A real API server takes 600 requests in all; 200 of these keep one core busy for 100 ms."""

ACCOUNT: Final = Share(requests_max=50, watches_max=100, answer_bytes_max=64 << 20, body_bytes_max=32 << 20)
"""Of one service account."""

LONG_ANSWER_BYTES: Final = 256 << 10
"""Shorter answers fit into the buffers of a connection, and are not counted."""
PIECE_BYTES: Final = 64 << 10
"""Of a long answer, or of the changes of a watch, that is written at once."""


class Load:
    """What is under way; the shares are those above, or as much less as there is less memory."""

    def __init__(self, memory: MemoryShares | None = None) -> None:
        self._memory = memory or MemoryShares(STORE_BYTES_MAX, BODY_BYTES_MAX, ANSWER_BYTES_MAX)
        self._under_way: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def request(self, user: Caller, *, is_local: bool, is_watch: bool) -> Iterator[None]:
        """Count a request while it is under way.

        Raises:
            StatusError: 429.
        """
        what = "watches" if is_watch else "requests"
        with self._counted(user, what, 1, is_local=is_local):
            yield

    @contextmanager
    def answer(self, user: Caller | None, size_bytes: int, *, is_local: bool) -> Iterator[None]:
        """Count a long answer until the client has it.

        Raises:
            StatusError: 429.
        """
        with self._counted(user, "bytes of answers", size_bytes, is_local=is_local):
            yield

    @contextmanager
    def body(self, user: Caller, size_bytes: int, *, is_local: bool) -> Iterator[None]:
        """Count a body, and what is made of it, until its request is answered.

        Raises:
            StatusError: 429.
        """
        with self._counted(user, "bytes of bodies", size_bytes, is_local=is_local):
            yield

    @contextmanager
    def _counted(self, user: Caller | None, what: str, amount: int, *, is_local: bool) -> Iterator[None]:
        shares = [("the Unix socket", LOCAL)] if is_local else [("the TCP port", REMOTE)]
        if user is not None and user.namespace is not None:
            shares.append((user.name, ACCOUNT))
        for owner, share in shares:
            most = self._limit(share, what)
            taken = self._under_way[owner, what]
            if taken and taken + amount > most:  # one is let through, however long its answer
                raise status_errors.too_many_requests(
                    f"too many {what} of {owner}: at most {most} at once, try again later"
                )
        for owner, _ in shares:
            self._under_way[owner, what] += amount
        try:
            yield
        finally:
            for owner, _ in shares:
                self._under_way[owner, what] -= amount
                if not self._under_way[owner, what]:
                    del self._under_way[owner, what]

    def _limit(self, share: Share, what: str) -> int:
        limits = {
            "requests": share.requests_max,
            "watches": share.watches_max,
            "bytes of answers": min(share.answer_bytes_max, self._memory.answer_bytes_max),
            "bytes of bodies": min(share.body_bytes_max, self._memory.body_bytes_max),
        }
        return limits[what]
