"""How much memory the API server may take, and what it gives to what: decided once, when it starts.

What would not fit is refused before it is read or stored. A process that has run out of memory is of no more
use: allocations fail wherever they happen to be, in the middle of an answer, or in the thread that writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STORE_BYTES_MAX: Final = 2 << 30
"""JSON of all objects; etcd takes as much unless told otherwise."""
BODY_BYTES_MAX: Final = 256 << 20
ANSWER_BYTES_MAX: Final = 1 << 30

_BYTES_FOR_STORED: Final = 6
"""Memory for a byte of JSON that is kept: itself, and its values once they were looked at (2 to 5 bytes)."""
_BYTES_FOR_BODY: Final = 8
"""Memory for a byte of a body: itself, its values, those of the next state, and the JSON of that."""
_BYTES_FOR_ANSWER: Final = 2
"""Memory for a byte of a long answer: itself, and the buffers of its connection."""
_SHARE_MIN_BYTES: Final = 4 << 20
"""Of each: one object of the greatest length must pass."""

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # malloc.h
_ARENAS: Final = 2
_MMAP_THRESHOLD_BYTES: Final = 512 << 10
"""asyncio takes 256 KiB for each read of a TLS connection and gives it back: no system calls below this."""

_TRIM_THRESHOLD_BYTES: Final = 2 << 20

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """What may be held at once, in bytes of JSON.

    Attributes:
        store_bytes_max: all objects together.
        body_bytes_max: bodies of requests that are under way.
        answer_bytes_max: long answers that clients have not taken yet.
    """

    store_bytes_max: int
    body_bytes_max: int
    answer_bytes_max: int

    @classmethod
    def of(cls, free_bytes: int) -> MemoryShares:
        """Divide what is free: half for the store, a quarter each for bodies and answers."""

        def share(part: int, cost: int, most: int) -> int:
            return min(max(free_bytes // part // cost, _SHARE_MIN_BYTES), most)

        return cls(
            store_bytes_max=share(2, _BYTES_FOR_STORED, STORE_BYTES_MAX),
            body_bytes_max=share(4, _BYTES_FOR_BODY, BODY_BYTES_MAX),
            answer_bytes_max=share(4, _BYTES_FOR_ANSWER, ANSWER_BYTES_MAX),
        )


def free_bytes() -> int:
    """Return how much more memory this process may take: half of the machine's, or what its limits leave."""
    pages = _numbers_of("/proc/self/statm")
    size, resident = (pages[0], pages[1]) if len(pages) > 1 else (0, 0)
    physical = _physical_bytes()
    page_bytes = resource.getpagesize()
    bounds = [physical // 2 - resident * page_bytes]
    for number, used in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_DATA, pages[5] if len(pages) > 5 else 0),
    ):
        limit = resource.getrlimit(number)[0]
        if limit != resource.RLIM_INFINITY:
            bounds.append(limit - used * page_bytes)
    for path in _CGROUP_LIMITS:
        if found := _numbers_of(path):
            bounds.append(found[0] // 2 - resident * page_bytes)
    return max(min(bounds), 0)


def bound_heap() -> None:
    """Have glibc give large blocks back to the system at once, and reserve address space for few threads.

    Unasked it keeps 64 MiB of addresses for each thread, and what large requests took for the next ones.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _numbers_of(path: str) -> list[int]:
    try:
        return [int(word) for word in Path(path).read_text().split()]
    except (OSError, ValueError):  # there is none, or it says `max`
        return []
