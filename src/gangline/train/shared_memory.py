"""Sum gradients between the ranks of one node through shared memory, in numpy and without a compiler.

Memory is one file in /dev/shm that all ranks map and that is unlinked at once, so that nothing is left behind
whatever kills a rank. A tensor goes through it in pieces that fit the processor's cache: each rank writes the
other ranks' parts of a piece into its box, adds up its own part in the order of the ranks, and writes the sum
where the others fetch it. Every part is summed by one rank only, so all ranks end with the same bits.
Boxes and sums are double, so one barrier per piece is enough::

    step k:   sum part of piece k  |  post piece k+1  |  barrier  |  fetch piece k

A barrier is a counter for each rank. Who waits looks at the counters a few times and then sleeps in a futex;
in between it checks that its peers still live, by the file locks that they hold.
Only Linux on x86-64: the order in which other processors see plain stores is what makes it right.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.train.peers import PeerLostError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FOLDER = Path("/dev/shm")
PIECE_BYTES = 1 << 20
BOXES_BYTES_MAX = 48 << 20
"""Below the 64 MiB that containers have as /dev/shm by default; many ranks get smaller pieces."""
PIECE_BYTES_MIN = 1 << 16
RANKS_MAX = 64
LOOKS = 50
"""How often a waiting rank looks before it sleeps, about 10 us."""
SLEEP_S = 0.5
"""How long it sleeps at most before it asks whether its peers still live."""
LEFTOVER_AGE_S = 60.0

_LINE = 64
_SYS_FUTEX = 202
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1


def why_unsupported() -> str:
    """Return why this machine cannot do it, ``""`` when it can."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return "it needs Linux on x86-64"
    if not os.access(FOLDER, os.W_OK):
        return f"{FOLDER} cannot be written"
    return ""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class SharedMemory:
    """One rank's view of the memory that the ranks of a node share.

    Args:
        path: of the file; the first rank creates it, the others open it.
        rank: among the ranks of this node.
        size: number of ranks of this node, 2 to 64.
        create: this rank creates the file.
        names: the rank in the job of each rank of this node, for messages; the same ones unless given.

    Raises:
        OSError: it cannot be created at its full size, or is not there.
    """

    def __init__(
        self, path: Path, rank: int, size: int, *, create: bool, names: Sequence[int] | None = None
    ) -> None:
        import numpy as np

        assert 2 <= size <= RANKS_MAX, "a node of 2 to 64 ranks"
        self.rank, self.size = rank, size
        self.given_up: Exception | None = None
        self._names = range(size) if names is None else names
        self.piece_bytes = piece_bytes(size)
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0) | os.O_NOFOLLOW | os.O_CLOEXEC
        self._path = path
        self._fd = os.open(path, flags, 0o600)
        length = _LINE * size + 2 * (size + 1) * self.piece_bytes
        try:
            if create:
                os.posix_fallocate(
                    self._fd, 0, length
                )  # a full /dev/shm must fail here, not kill a rank later
            self._map = mmap.mmap(self._fd, length)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except OSError:
            os.close(self._fd)
            if create:
                path.unlink(missing_ok=True)
            raise
        self._seen = np.ndarray((size, _LINE // 4), np.int32, self._map)
        self._seen_list = [self._seen[peer, :1] for peer in range(size)]
        boxes = np.ndarray((2, size + 1, self.piece_bytes), np.uint8, self._map, _LINE * size)
        self._boxes, self._sums = boxes[:, :size], boxes[:, size]
        self._address = self._seen.ctypes.data
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._step = 0

    def unlink(self) -> None:
        """Take the file's name away; who has mapped it keeps the memory."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the memory go; it vanishes with its last user."""
        del self._seen, self._seen_list, self._boxes, self._sums
        with suppress(BufferError):
            self._map.close()
        os.close(self._fd)

    # Barrier -----------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Return when all ranks have come as often as this one.

        Raises:
            PeerLostError: a rank that has not come is dead.
        """
        self._step = step = (self._step + 1) & 0x3FFFFFFF
        self._seen[self.rank, 0] = step
        self._futex(self.rank, _FUTEX_WAKE, 0x7FFFFFFF)
        for peer in range(self.size):
            if peer != self.rank:
                self._wait_for(peer, step)

    def _wait_for(self, peer: int, step: int) -> None:
        counter = self._seen_list[peer]
        for _ in range(LOOKS):
            if self._has_come(int(counter[0]), step):
                return
        while not self._has_come(seen := int(counter[0]), step):
            slept_from = time.monotonic()
            self._futex(peer, _FUTEX_WAIT, seen)
            if self.given_up is not None:
                raise self.given_up
            if time.monotonic() - slept_from >= SLEEP_S and not self._lives(peer):
                if self._has_come(int(counter[0]), step):
                    return
                rank = self._names[peer]
                raise PeerLostError(
                    f"rank {rank} ended while others waited for it in the average of gradients",
                    ranks=[rank],
                    hint="its log says why",
                )

    @staticmethod
    def _has_come(seen: int, step: int) -> bool:
        return ((seen - step) & 0x3FFFFFFF) < 0x20000000

    def _futex(self, rank: int, operation: int, value: int) -> None:
        """Sleep until a rank's counter is no longer `value`, or wake who sleeps on it; releases the GIL."""
        limit = _Timespec(0, int(SLEEP_S * 1e9)) if operation == _FUTEX_WAIT else None
        self._libc.syscall(
            ctypes.c_long(_SYS_FUTEX),
            ctypes.c_void_p(self._address + rank * _LINE),
            ctypes.c_int(operation),
            ctypes.c_int(value),
            ctypes.byref(limit) if limit else None,
            None,
            ctypes.c_int(0),
        )

    def _lives(self, peer: int) -> bool:
        """Return whether a rank still holds the lock that the kernel takes from a dead process."""
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, peer, 1, 0)
        kind = struct.unpack_from("h", fcntl.fcntl(self._fd, fcntl.F_GETLK, request))[0]
        return bool(kind != fcntl.F_UNLCK)

    # All-reduce --------------------------------------------------------------------------------------------

    def all_reduce(self, flat: Array, add: Callable[[list[Array], Array], None]) -> None:
        """Replace a flat array by what `add` makes of the arrays of all ranks; the same bits on all ranks.

        Args:
            flat: contiguous, one dimension, of the same length and type on all ranks.
            add: is given the ranks' pieces in the order of the ranks, and where the result goes.

        Cost: 25 MB in 3 to 5 ms for two ranks on two idle vCPUs (see benchmarks/train_allreduce.py).
        """
        pieces = self._pieces(flat)
        if not pieces:
            return
        self._post(pieces[0], 0)
        self.barrier()
        for number, piece in enumerate(pieces):
            own = self._part(len(piece), self.rank)
            self._sum(piece, own, number % 2, add)
            if number + 1 < len(pieces):
                self._post(pieces[number + 1], (number + 1) % 2)
            self.barrier()
            self._fetch(piece, own, number % 2)
        # A peer may still fetch the last sums: the next call writes sums only behind its first barrier.

    def broadcast(self, flat: Array) -> None:
        """Replace a flat array on all ranks of the node by that of its first rank."""
        self.barrier()  # nobody still fetches sums
        for number, piece in enumerate(self._pieces(flat)):
            sums = self._sums[number % 2, : piece.nbytes].view(piece.dtype)
            if self.rank == 0:
                sums[:] = piece
            self.barrier()
            if self.rank != 0:
                piece[:] = sums

    def _pieces(self, flat: Array) -> list[Array]:
        length = self.piece_bytes // flat.itemsize
        return [flat[start : start + length] for start in range(0, len(flat), length)]

    def _part(self, length: int, rank: int) -> slice:
        """Return which part of a piece a rank sums; parts begin on cache lines where they can."""
        share = -(-length // self.size)
        share = -(-share // 16) * 16
        return slice(min(length, rank * share), min(length, (rank + 1) * share))

    def _box(self, slot: int, rank: int, like: Array) -> Array:
        return self._boxes[slot, rank, : like.nbytes].view(like.dtype)

    def _post(self, piece: Array, slot: int) -> None:
        own = self._part(len(piece), self.rank)
        box = self._box(slot, self.rank, piece)
        box[: own.start] = piece[: own.start]
        box[own.stop :] = piece[own.stop :]

    def _sum(self, piece: Array, own: slice, slot: int, add: Callable[[list[Array], Array], None]) -> None:
        if own.start == own.stop:
            return
        parts = [
            piece[own] if peer == self.rank else self._box(slot, peer, piece)[own]
            for peer in range(self.size)
        ]
        sums = self._sums[slot, : piece.nbytes].view(piece.dtype)[own]
        add(parts, sums)

    def _fetch(self, piece: Array, own: slice, slot: int) -> None:
        piece[:] = self._sums[slot, : piece.nbytes].view(piece.dtype)


def piece_bytes(size: int) -> int:
    """Return how much of a tensor goes through the memory at once, for a number of ranks."""
    piece = PIECE_BYTES
    while piece > PIECE_BYTES_MIN and 2 * (size + 1) * piece > BOXES_BYTES_MAX:
        piece //= 2
    return piece


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
