"""Long work away from the event loop, so that one large request does not make the others wait.

A thread does not make Python faster, but the interpreter changes threads every 5 ms: others are answered
while a large body is read or checked. Small work stays where it is: changing threads costs 50 microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

INLINE_BYTES_MAX: Final = 64 << 10
"""Bodies up to this length take a few milliseconds at most, whatever is in them."""

THREADS_MAX: Final = 2
"""More would only take turns with each other, and each may hold some 100 MB of values."""

P = ParamSpec("P")
T = TypeVar("T")


async def run_sized(size_bytes: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``work`` returns: called at once for a small size, else in a thread.

    The work must touch nothing that others change, for they run meanwhile.
    """
    if size_bytes <= INLINE_BYTES_MAX:
        return work(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads(), lambda: work(*args, **kwargs))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads, made for the first large request."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="large-request")
