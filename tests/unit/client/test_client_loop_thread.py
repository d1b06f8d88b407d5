"""Coroutines that a thread without an event loop, or with one that runs, waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator

import pytest

from gangline.client.loop_thread import LoopThread, in_calling_thread


@pytest.fixture
def loop() -> LoopThread:
    return LoopThread()


async def test_it_works_inside_of_a_running_loop(loop: LoopThread) -> None:
    async def seven() -> int:
        return 7

    assert loop.call(seven()) == 7


def test_an_error_is_raised_where_it_was_waited_for(loop: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        loop.call(fail())


def test_what_is_told_is_told_by_the_calling_thread(loop: LoopThread) -> None:
    threads: list[int] = []
    tell = in_calling_thread(lambda: threads.append(threading.get_ident()))

    async def work() -> None:
        tell()
        await asyncio.to_thread(tell)

    loop.call(work())

    assert threads == [threading.get_ident()] * 2


@pytest.mark.parametrize("_", range(50))  # it meets the calling thread at another line each time
def test_an_interrupt_cancels_and_waits_for_the_clean_up(loop: LoopThread, _: int) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            done.append("clean")

    with pytest.raises(KeyboardInterrupt):
        loop.call(work())

    assert done == ["clean"]


def test_pieces_come_one_by_one_and_the_generator_is_closed(loop: LoopThread) -> None:
    closed: list[bool] = []

    async def pieces() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    found = loop.iterate(pieces())
    assert [next(found), next(found)] == [0, 1]
    assert closed == []
    found.close()  # type: ignore[attr-defined]

    assert closed == [True]
    assert list(loop.iterate(pieces())) == list(range(10))


def test_several_threads_wait_at_once(loop: LoopThread) -> None:
    both = threading.Barrier(2, timeout=30)

    async def meet() -> None:
        await asyncio.to_thread(both.wait)

    other = threading.Thread(target=lambda: loop.call(meet()))
    other.start()
    loop.call(meet())
    other.join(30)

    assert not both.broken


def test_a_forked_child_has_a_loop_of_its_own(loop: LoopThread) -> None:
    async def seven() -> int:
        return 7

    loop.call(seven())
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(loop.call(seven()))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
