"""How long to wait before asking a server again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from gangline.kube.errors import ApiError, Unavailable


class Backoff(msgspec.Struct, frozen=True):
    """Pauses before the next list or watch after a failure.

    Attributes:
        delay_min_s: the first pause; it doubles with each failure in a row. Each pause is cut by up to half
            at random, so that clients do not come back together.
        reconnect_delay_max_s: the longest pause after a broken or refused connection.
        relist_delay_max_s: the longest pause after an error of the server and after a 410.
        sleep: how to pause; tests pass their own.
    """

    delay_min_s: float = 0.1
    reconnect_delay_max_s: float = 5.0
    relist_delay_max_s: float = 30.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def delay_s(self, failures: int, error: ApiError | None) -> float:
        """Return the pause after that many failures in a row (1 for the first)."""
        is_connection = error is None or isinstance(error, Unavailable)
        longest_s = self.reconnect_delay_max_s if is_connection else self.relist_delay_max_s
        delay_s = min(self.delay_min_s * 2.0 ** min(failures - 1, 32), longest_s) * random.uniform(0.5, 1.0)
        return max(delay_s, error.retry_after_s or 0.0) if error else delay_s
