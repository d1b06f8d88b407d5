"""Memory that the ranks of a node share, and a barrier in it; no compiler is needed.

Memory is one file in /dev/shm that all ranks map and that is unlinked at once, so that nothing is left behind
whatever kills a rank. It holds, for every rank, semaphores, a line that says which collective it is in, and
a box; and a few rooms for results.

A barrier is a POSIX semaphore for each pair of ranks: who comes posts to all others and waits for a post of
each. Semaphores are what makes plain stores right on every processor: POSIX has sem_post and sem_wait
synchronize memory, and the C libraries do it with release and acquire on aarch64 and x86-64 alike. In between
a waiting rank checks that its peers still live, by the file locks that they hold.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.errors import GanglineError
from gangline.train.peers import PeerLostError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FOLDER = Path("/dev/shm")
PROCESSORS = ("x86_64", "aarch64")
PIECE_BYTES = 1 << 20
MEMORY_BYTES_MAX = 48 << 20
"""Below the 64 MiB that containers have as /dev/shm by default; many ranks get smaller pieces."""
PIECE_BYTES_MIN = 1 << 16
RANKS_MAX = 64
LOOKS = 50
"""How often a waiting rank looks before it sleeps, about 10 us."""
SLEEP_S = 0.25
"""How long it sleeps at most before it asks whether its peers still live."""
LEFTOVER_AGE_S = 60.0
RANGES_AT_ONCE = 1024
"""Linux' own most."""
RANGE_BYTES_SMALL = 1 << 15
"""Below it, on average, ranges are copied by the kernel together."""

_LINE = 64
"""Bytes of a cache line; a semaphore of glibc and of musl has 32."""
_LEFT, _ABROAD = 4, 5
"""Places in a rank's line, behind the two signatures."""


class MismatchError(GanglineError, RuntimeError):
    """Ranks came to different collectives, or to the same one with other shapes or types."""

    code = "collectives-differ"


def why_unsupported() -> str:
    """Return why this machine cannot do it, ``""`` when it can."""
    if not sys.platform.startswith("linux") or platform.machine() not in PROCESSORS:
        return f"it needs Linux on {' or '.join(PROCESSORS)}"
    if not os.access(FOLDER, os.W_OK):
        return f"{FOLDER} cannot be written"
    return ""


def memory_domain() -> str:
    """Return a name for the /dev/shm that this process sees, ``""`` without one that it can use.

    Every mount of one has its own device number.
    """
    if why_unsupported():
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{FOLDER.stat().st_dev}/{os.getuid()}"


def piece_bytes(size: int, rooms: int) -> int:
    """Return how much of a tensor goes through the memory at once, for a number of ranks and rooms."""
    piece = PIECE_BYTES
    while piece > PIECE_BYTES_MIN and (2 * size + rooms) * piece > MEMORY_BYTES_MAX:
        piece //= 2
    return piece


def memory_bytes(size: int, rooms: int) -> int:
    """Return how long the file of a node's ranks is."""
    return _LINE * size * (size + 1) + (2 * size + rooms) * piece_bytes(size, rooms)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Memory:
    """One rank's view of the memory that the ranks of a node share; a node of one rank has some of its own.

    Args:
        path: of the file; the first rank creates it, the others open it. None for a node of one rank.
        rank: among the ranks of this node.
        size: number of ranks of this node, 1 to 64.
        rooms: for results.
        create: this rank creates the file.
        names: the rank in the job of each rank of this node, for messages; the same ones unless given.

    Attributes:
        boxes: (2, size, piece_bytes) of uint8: what each rank shows the others.
        rooms: (rooms, piece_bytes) of uint8: what they make of it.
        on_late: is told for whom this rank waits, four times a second: the collective, the ranks in the job
            that have not come and do not wait for other nodes, and for how many seconds.
        turn: counts what went through the boxes; its parity says which of the two is next.

    Raises:
        OSError: it cannot be created at its full size, or is not there.
    """

    def __init__(
        self,
        path: Path | None,
        rank: int,
        size: int,
        *,
        rooms: int = 2,
        create: bool = False,
        names: Sequence[int] | None = None,
    ) -> None:
        import numpy as np

        assert 1 <= size <= RANKS_MAX, "a node of 1 to 64 ranks"
        self.rank, self.size = rank, size
        self.given_up: Exception | None = None
        self.on_late: Callable[[str, Sequence[int], float], object] = lambda *_: None
        self.timeout_s = float("inf")
        self.turn = 0
        self.names = [*range(size)] if names is None else [*names]
        self.piece_bytes = piece_bytes(size, rooms)
        self._path = path
        self._others = [peer for peer in range(size) if peer != rank]
        head = _LINE * size * (size + 1)
        length = memory_bytes(size, rooms)
        self._fd, self._map = _map_own(length) if path is None else _map_file(path, length, rank, create)
        self._lines = np.ndarray((size, _LINE // 8), np.int64, self._map)
        self.boxes = np.ndarray((2, size, self.piece_bytes), np.uint8, self._map, head)
        self.rooms = np.ndarray(
            (rooms, self.piece_bytes), np.uint8, self._map, head + 2 * size * self.piece_bytes
        )
        first = self._lines.ctypes.data + _LINE * size
        self._semaphores = [
            [ctypes.c_void_p(first + _LINE * (poster * size + waiter)) for waiter in range(size)]
            for poster in range(size)
        ]
        self._quick, self._slow = ctypes.PyDLL(None, use_errno=True), ctypes.CDLL(None, use_errno=True)
        for vectored in (self._slow.pwritev, self._slow.preadv):
            vectored.restype = ctypes.c_ssize_t
        if create:
            for semaphores in self._semaphores:
                for semaphore in semaphores:
                    self._quick.sem_init(semaphore, 1, 0)

    def unlink(self) -> None:
        """Take the file's name away; who has mapped it keeps the memory."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the memory go; it vanishes with its last user."""
        del self._lines, self.boxes, self.rooms
        with suppress(BufferError):
            self._map.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # What a rank is in --------------------------------------------------------------------------------------

    def enter(self, signature: int) -> None:
        """Say which collective this rank comes to; `check_same` after the next barrier compares."""
        self._lines[self.rank, self.turn % 2] = signature

    def check_same(self, what: str, turn: int) -> None:
        """Compare what all ranks came to at a turn.

        Raises:
            MismatchError: on every rank, when they came to different ones.
        """
        column = self._lines[:, turn % 2]
        own = column[self.rank]
        if self.size == 1 or (column == own).all():
            return
        others = [self.names[peer] for peer in self._others if column[peer] != own]
        raise MismatchError(
            f"rank {self.names[self.rank]} came to {what}, rank"
            f"{'s' if len(others) > 1 else ''} {', '.join(map(str, others[:8]))} to another collective or "
            "with another shape or type",
            hint="all ranks of a group must call the same collectives in the same order",
        )

    # Scattered ranges ---------------------------------------------------------------------------------------

    def gather(self, array: Array, places: Array, sizes: Array) -> None:
        """Fill an array of this memory from ranges of the process's memory, one after the other.

        Many small ranges are copied by the kernel, which writes the file that the memory is: 1,000 of 1 KiB
        in 0.1 ms, where a call for each takes 0.4 ms.

        Args:
            array: a part of `boxes` or `rooms`.
            places: addresses, int64.
            sizes: bytes, int64; together those of the array.
        """
        if array.nbytes < len(places) * RANGE_BYTES_SMALL:
            self._copy_small(self._slow.pwritev, array, places, sizes)
        else:
            copy_ranges(ranges_of(array, sizes), places.tolist(), sizes.tolist())

    def scatter(self, array: Array, places: Array, sizes: Array) -> None:
        """Copy an array of this memory to ranges of the process's memory; see `gather`."""
        if array.nbytes < len(places) * RANGE_BYTES_SMALL:
            self._copy_small(self._slow.preadv, array, places, sizes)
        else:
            copy_ranges(places.tolist(), ranges_of(array, sizes), sizes.tolist())

    def _copy_small(self, call: Any, array: Array, places: Array, sizes: Array) -> None:
        import numpy as np

        offset = array.ctypes.data - self._lines.ctypes.data
        ranges = np.stack((places, sizes), axis=1)
        for begin in range(0, len(ranges), RANGES_AT_ONCE):
            some = ranges[begin : begin + RANGES_AT_ONCE]
            wanted = int(some[:, 1].sum())
            done = call(self._fd, ctypes.c_void_p(some.ctypes.data), len(some), ctypes.c_long(offset))
            if done != wanted:
                raise OSError(ctypes.get_errno(), f"{done} of {wanted} bytes of shared memory were copied")
            offset += wanted

    # Barrier -----------------------------------------------------------------------------------------------

    def barrier(self, what: str = "a barrier") -> None:
        """Return when all ranks have come as often as this one.

        Args:
            what: the collective, for messages.

        Raises:
            PeerLostError: a rank that has not come is dead, or has not come within the time-out.

        Cost: 5 us for two ranks that come together.
        """
        own = self._semaphores[self.rank]
        for peer in self._others:
            self._quick.sem_post(own[peer])
        for peer in self._others:
            self._wait_for(peer, self._semaphores[peer][self.rank], what)

    def fail(self) -> None:
        """Let the others on this node know that this rank has left the collectives with an error."""
        self._lines[self.rank, _LEFT] = 1

    @contextmanager
    def abroad(self) -> Iterator[None]:
        """Let the others on this node know that this rank waits for other nodes in the block."""
        self._lines[self.rank, _ABROAD] = 1
        try:
            yield
        finally:
            self._lines[self.rank, _ABROAD] = 0

    def _wait_for(self, peer: int, semaphore: ctypes.c_void_p, what: str) -> None:
        for _ in range(LOOKS):
            if self._quick.sem_trywait(semaphore) == 0:
                return
        began = time.monotonic()
        until = _Timespec()
        while True:
            # The clock of sem_timedwait may be set: at worst the next look at the peers is late.
            wake = time.time() + SLEEP_S
            until.seconds, until.nanoseconds = int(wake), int(wake % 1 * 1e9)
            if self._slow.sem_timedwait(semaphore, ctypes.byref(until)) == 0:
                return
            if self.given_up is not None:
                raise self.given_up
            if ctypes.get_errno() == errno.ETIMEDOUT:
                self._look_at(peer, what, semaphore, time.monotonic() - began)

    def _look_at(self, peer: int, what: str, semaphore: ctypes.c_void_p, waited_s: float) -> None:
        # A rank that ended with an error said so before, and is not what others waited for.
        dead = [one for one in self._others if not self._lines[one, _LEFT] and not self._lives(one)]
        if _value(self._quick, semaphore):
            return
        if dead:
            ranks = [self.names[one] for one in dead]
            raise PeerLostError(
                f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} ended while others waited "
                f"in {what}",
                ranks=ranks,
                hint="its log says why",
            )
        if self._lines[peer, _LEFT]:
            raise PeerLostError(
                f"rank {self.names[peer]} left {what} with an error of its own", hint="its log says why"
            )
        if waited_s > self.timeout_s:
            raise PeerLostError(
                f"rank {self.names[peer]} did not come to {what} within {self.timeout_s:.0f} s",
                hint="see what it does, or give init(timeout_s=…) a larger number",
            )
        late = [
            one
            for one in self._others[self._others.index(peer) :]
            if not self._lines[one, _ABROAD] and not _value(self._quick, self._semaphores[one][self.rank])
        ]
        if late:
            self.on_late(what, [self.names[one] for one in late], waited_s)

    def _lives(self, peer: int) -> bool:
        """Return whether a rank still holds the lock that the kernel takes from a dead process."""
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, peer, 1, 0)
        kind = struct.unpack_from("h", fcntl.fcntl(self._fd, fcntl.F_GETLK, request))[0]
        return bool(kind != fcntl.F_UNLCK)


def ranges_of(array: Array, sizes: Array) -> list[int]:
    """Return the addresses of an array's ranges, one after the other."""
    addresses: list[int] = (sizes.cumsum() - sizes + array.ctypes.data).tolist()
    return addresses


def copy_ranges(to: Sequence[int], source: Sequence[int], sizes: Sequence[int]) -> None:
    """Copy ranges of the process's memory, given their addresses, with one call for each."""
    deque(map(ctypes.memmove, to, source, sizes), maxlen=0)


def _value(libc: ctypes.CDLL, semaphore: ctypes.c_void_p) -> int:
    """Return how many posts have not been waited for."""
    value = ctypes.c_int()
    libc.sem_getvalue(semaphore, ctypes.byref(value))
    return value.value


def _map_own(length: int) -> tuple[int, mmap.mmap]:
    fd = os.memfd_create("gangline")
    os.ftruncate(fd, length)
    return fd, mmap.mmap(fd, length)


def _map_file(path: Path, length: int, rank: int, create: bool) -> tuple[int, mmap.mmap]:
    flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0) | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        if create:
            os.posix_fallocate(fd, 0, length)  # a full /dev/shm must fail here, not kill a rank later
        mapped = mmap.mmap(fd, length)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
    except (OSError, ValueError):
        os.close(fd)
        if create:
            path.unlink(missing_ok=True)
        raise
    return fd, mapped


def remove_leftovers() -> None:
    """Remove files of ranks that were killed between creating and unlinking: old ones that nobody locks."""
    for path in FOLDER.glob(f"gangline-{os.getuid()}-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < LEFTOVER_AGE_S:
                continue  # another job that just starts
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            finally:
                os.close(fd)
