"""What is under way: collectives as torch's Work, and the thread behind them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from gangline.train.traffic import Traffic

Explain = Callable[[Exception, str], Exception]
"""What failed and in which collective -> the error for the user."""
Finish = Callable[[], None]
"""What is still to be done with the results."""


class Collective(Work):
    """A collective that this rank has come to.

    Args:
        what: for people, for example ``all_reduce of 25.0 MB``.
        run: does it; called once.
        tensors: its results.
        traffic: is told of begin and end.
    """

    def __init__(self, what: str, run: Callable[[], None], tensors: Any, traffic: Traffic) -> None:
        super().__init__()
        self.what, self._run, self._tensors = what, run, tensors
        self._traffic, self._token = traffic, traffic.begin(what)
        self._error: Exception | None = None
        self._done = threading.Event()
        self._future: Any = None
        self._lock = threading.Lock()

    def do(self, explain: Explain) -> None:
        """Do it, in this thread; an error is kept for those who wait."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the one who waits must have it
            self._error = explain(error, self.what)
        self._traffic.end(self._token)
        with self._lock:
            self._done.set()
            future = self._future
        if future is not None:
            self._complete(future)

    def _complete(self, future: Any) -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._tensors)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when it is done.

        Raises:
            PeerLostError: a rank ended, or did not come in time.
            MismatchError: the ranks came to different collectives.
            TimeoutError: a time-out was given and is over; the collective goes on.
        """
        seconds = timeout.total_seconds() if timeout else 0.0
        if not self._done.wait(seconds if seconds > 0 else None):
            raise TimeoutError(f"{self.what} was not done within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait, as torch's CPU backends do."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it is done, with or without an error."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Return whether it is done without an error."""
        return self._done.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """Return its error."""
        return self._error

    def result(self) -> Any:
        """Return its tensors."""
        self.wait()
        return self._tensors

    def get_future(self) -> Any:
        """Return a future of its tensors; the same one each time."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._done.is_set():
                    self._complete(self._future)
            return self._future


class Delegated(Work):
    """A collective that gloo does, with our errors; it counts as waiting while somebody waits for it.

    Args:
        what: for people.
        works: torch's works, or futures, that are under way.
        finish: is called once when all works are done.
        tensors: its results.
        traffic: is told of begin and end.
        explain: makes the errors.
    """

    def __init__(
        self,
        what: str,
        works: list[Any],
        finish: Finish | None,
        tensors: Any,
        traffic: Traffic,
        explain: Explain,
    ) -> None:
        super().__init__()
        self.what, self._works, self._tensors = what, works, tensors
        self._traffic, self._explain = traffic, explain
        self._future: Any = None
        if finish is not None:
            self._future = self._all().then(lambda done: self._finished(done, finish))

    def _all(self) -> Any:
        futures = [one if isinstance(one, torch.futures.Future) else one.get_future() for one in self._works]
        return futures[0] if len(futures) == 1 else torch.futures.collect_all(futures)

    def _finished(self, done: Any, finish: Callable[[], None]) -> Any:
        done.value()
        finish()
        return self._tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when it is done.

        Raises:
            PeerLostError: a rank ended, or did not come in time.
        """
        token = self._traffic.begin(self.what)
        try:
            for work in [self._future] if self._future is not None else self._works:
                work.wait(*([timeout] if timeout else []))
        except RuntimeError as error:
            raise self._explain(error, self.what) from error
        finally:
            self._traffic.end(token)
        return True

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it is done."""
        return bool(self._future.done() if self._future is not None else self._is_completed())

    def _is_completed(self) -> bool:
        return all(
            one.done() if isinstance(one, torch.futures.Future) else one.is_completed() for one in self._works
        )

    def is_success(self) -> bool:
        """Return whether it is done without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Any:
        """Return its error."""
        return next((one.exception() for one in self._works if isinstance(one, Work)), None)

    def result(self) -> Any:
        """Return its tensors."""
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        """Return whom a receive from anybody got its tensor from."""
        return int(self._works[0]._source_rank())

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Return a future of its tensors."""
        return self._future if self._future is not None else self._all()


class CollectiveQueue:
    """The collectives of one group, one after the other: in a thread, or in the caller's where none waits.

    Args:
        name: of the thread.
        explain: makes the errors.
    """

    def __init__(self, name: str, explain: Explain) -> None:
        self._explain = explain
        self._queue: queue.SimpleQueue[Collective | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock, self._running = threading.Lock(), threading.Lock()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._is_started = False

    def take(self, work: Collective, *, is_async: bool) -> Collective:
        """Do a collective now where the caller would wait anyway, else after those before it."""
        with self._lock:
            is_free = not is_async and self._waiting == 0 and self._running.acquire(blocking=False)
            if not is_free:
                self._waiting += 1
                self._queue.put(work)
                if not self._is_started:
                    self._is_started = True
                    self._thread.start()
        if is_free:
            try:
                work.do(self._explain)
            finally:
                self._running.release()
        return work

    def close(self, limit_s: float) -> bool:
        """End the thread after what is under way; return whether it has ended."""
        if self._is_started:
            self._queue.put(None)
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._running:
            yield
        with self._lock:
            self._waiting -= 1

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            with self._turn():
                work.do(self._explain)
            del work  # its tensors go with their last user
