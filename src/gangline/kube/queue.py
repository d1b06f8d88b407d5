"""A queue of keys to reconcile: no key twice, no two workers on one key, nothing lost.

A key added while it waits stays one entry; added while a worker has it, it is handed out again after
``done``. Errors are retried with a back-off for each key; everything else is immediate.
Source: the semantics of client-go's workqueue (a published contract that controllers rely on).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gangline.kube.errors import ApiError, Conflict

retry_delay_min_s = 0.005
retry_delay_max_s = 30.0
"""The pause after the first failure of a key; it doubles with each further one, up to the maximum."""

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue hands out nothing any more."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A moment of a queue.

    Attributes:
        ready: keys that wait for a worker.
        in_work: keys that a worker has.
        delayed: keys that wait for their time.
        added: keys put in the queue since the start, duplicates not counted.
        retries: failures since the start.
    """

    ready: int
    in_work: int
    delayed: int
    added: int
    retries: int


class WorkQueue(Generic[K]):
    """Keys to work on; for one event loop. Every call but ``get`` is O(1), delays O(log n)."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready, or to be when its worker is done
        self._in_work: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due_s: dict[K, float] = {}
        self._schedule: list[tuple[float, int, K]] = []  # entries that _due_s does not confirm are stale
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._is_shut_down = False
        self._added_count = 0
        self._retry_count = 0

    def add(self, key: K) -> None:
        """Put a key in the queue, unless it waits already."""
        if self._is_shut_down or key in self._waiting:
            return
        self._added_count += 1
        self._waiting.add(key)
        if key not in self._in_work:
            self._push(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Put a key in the queue later; of several times the earliest counts, and a past one is now."""
        if delay_s <= 0:
            self.add(key)
            return
        if self._is_shut_down:
            return
        due_s = asyncio.get_running_loop().time() + delay_s
        if due_s >= self._due_s.get(key, float("inf")):
            return
        self._due_s[key] = due_s
        self._sequence += 1
        heapq.heappush(self._schedule, (due_s, self._sequence, key))
        self._set_timer()

    def retry(self, key: K) -> float:
        """Put a key in the queue after the pause that its failures call for; return that pause."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retry_count += 1
        delay_s = min(retry_delay_min_s * 2.0 ** min(failures, 32), retry_delay_max_s)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """Start the back-off of a key anew; to be called after a success."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and take it; ``done`` must follow.

        Raises:
            QueueShutDown: there will be no more.
        """
        while not self._ready:
            if self._is_shut_down:
                raise QueueShutDown
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    self._wake_one()  # the call was for us, and we do not come
                else:
                    getter.cancel()
                raise
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._in_work.add(key)
        return key

    def done(self, key: K) -> None:
        """Give a key back; it is handed out again if it was added meanwhile."""
        self._in_work.discard(key)
        if key in self._waiting:
            self._push(key)

    def shutdown(self) -> None:
        """Take nothing more; what waits for a worker is still handed out, what waits for its time is not."""
        self._is_shut_down = True
        self._due_s.clear()
        self._schedule.clear()
        if self._timer:
            self._timer.cancel()
        while self._getters:
            self._wake_one()

    def statistics(self) -> QueueStatistics:
        """Return the numbers of this moment."""
        return QueueStatistics(
            ready=len(self._ready),
            in_work=len(self._in_work),
            delayed=len(self._due_s),
            added=self._added_count,
            retries=self._retry_count,
        )

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Have the earliest entry wake us; stale ones in front of it are dropped."""
        while self._schedule and self._due_s.get(self._schedule[0][2]) != self._schedule[0][0]:
            heapq.heappop(self._schedule)
        if not self._schedule:
            return
        due_s = self._schedule[0][0]
        if self._timer and not self._timer.cancelled():
            if self._timer.when() == due_s:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._schedule and self._schedule[0][0] <= now_s:
            due_s, _, key = heapq.heappop(self._schedule)
            if self._due_s.get(key) == due_s:
                del self._due_s[key]
                self.add(key)
        self._set_timer()


async def work(
    queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[float | None]], *, workers: int
) -> None:
    """Reconcile keys until the queue is shut down and empty, or this is cancelled.

    Args:
        queue: where the keys come from.
        reconcile: does the work for a key; the seconds that it returns are when it wants the key again. What
            it raises is logged, and the key is retried; a :class:`Conflict` means that it read an old state.
        workers: keys in work at once.
    """
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_worker(queue, reconcile))


async def _worker(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[float | None]]) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueShutDown:
            return
        try:
            again_after_s = await reconcile(key)
        except asyncio.CancelledError:
            queue.add(key)  # another worker may finish it
            raise
        except Exception as error:  # noqa: BLE001  # one bad object must not stop the others
            _log_failure(key, error, queue.retry(key))
        else:
            queue.forget(key)
            if again_after_s is not None:
                queue.add_after(key, again_after_s)
        finally:
            queue.done(key)


def _log_failure(key: object, error: Exception, delay_s: float) -> None:
    import structlog  # late: 30 ms that the command line does not pay

    log = structlog.get_logger()
    if isinstance(error, Conflict):
        log.debug("reconcile met a conflict", key=str(key), retry_after_s=delay_s)
        return
    where = None if isinstance(error, ApiError) else error  # what a server refuses is no defect of ours
    log.error("reconcile failed", key=str(key), error=str(error), retry_after_s=delay_s, exc_info=where)
