"""An event loop in a thread of its own, for callers that have none, or whose own runs, as in a notebook."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Awaited = Coroutine[Any, Any, T]
_Relay = SimpleQueue[Callable[[], object] | None]

CLEAN_UP_LIMIT_S = 60.0
"""For what a call that was interrupted has to clean up: the removal of its job."""

_RELAY: ContextVar[_Relay] = ContextVar("relay")
"""Of the call that a task belongs to: what its calling thread is to do meanwhile."""


def in_calling_thread(function: Callable[P, object]) -> Callable[P, None]:
    """Return a function that has the thread call the given one which waits for the coroutine, if one does.

    Output of another thread would go to another cell of a notebook.
    """

    def relayed(*args: P.args, **kwargs: P.kwargs) -> None:
        relay = _RELAY.get(None)
        if relay is None:
            function(*args, **kwargs)
        else:
            relay.put(lambda: function(*args, **kwargs))

    return relayed


class LoopThread:
    """Runs coroutines for the calling thread; started by the first, a daemon that ends with the process."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # a child has the loop, and not its thread

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, coroutine: Awaited[T]) -> T:
        """Return what a coroutine returns.

        When the waiting thread is interrupted (Ctrl-C, a kernel's stop button) the coroutine is cancelled and
        has 60 s to clean up; a second interrupt ends the wait for that, and the clean-up goes on.
        """
        relay: _Relay = SimpleQueue()
        context = copy_context()
        context.run(_RELAY.set, relay)
        loop, future, task = self._running(), Future[T](), list[asyncio.Task[T]]()

        async def carried() -> T:
            return await coroutine

        def ended(one: asyncio.Task[T]) -> None:
            if one.cancelled():
                future.cancel()
            elif error := one.exception():
                future.set_exception(error)
            else:
                future.set_result(one.result())
            relay.put(None)

        def start() -> None:
            task.append(loop.create_task(carried(), context=context))
            task[0].add_done_callback(ended)

        def cancel() -> None:
            task[0].cancel() if task else future.cancel()

        try:  # begun before the task: an interrupt may come at any line
            loop.call_soon_threadsafe(start)
            while told := relay.get():
                told()
            return future.result()
        except BaseException:  # of the wait, or of what it was told
            if not future.done():
                loop.call_soon_threadsafe(cancel)
                with suppress(CancelledError, TimeoutError):
                    future.exception(CLEAN_UP_LIMIT_S)
            raise

    def iterate(self, pieces: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yield what an asynchronous generator yields; it is closed with this one."""

        async def following() -> T:
            return await anext(pieces)

        try:
            while True:
                try:
                    piece = self.call(following())
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            self.call(pieces.aclose())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="gangline client", daemon=True).start()
                self._loop = loop
            return self._loop


LOOP = LoopThread()
"""Of this process; every client uses it."""
