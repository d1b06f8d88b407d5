"""The work queue: no key twice, no two workers on one key, nothing lost. No times are waited for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.kube.errors import Conflict
from gangline.kube.queue import QueueShutDown, WorkQueue, work


async def test_keys_come_out_in_order_and_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)

    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert queue.statistics().ready == 0


async def test_a_key_added_during_its_work_comes_again_after_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert queue.statistics().ready == 0

    queue.done("a")
    assert await queue.get() == "a"


async def test_a_key_not_added_again_does_not_come_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.done(await queue.get())

    assert queue.statistics() == queue.statistics().__class__(
        ready=0, in_work=0, delayed=0, added=1, retries=0
    )


async def test_retries_double_from_5_ms_to_30_s_until_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue()
    pauses_s = [queue.retry("a") for _ in range(20)]
    queue.forget("a")

    assert pauses_s[:4] == [0.005, 0.01, 0.02, 0.04]
    assert pauses_s[-1] == 30.0
    assert queue.retry("a") == 0.005
    assert queue.retry("b") == 0.005
    queue.shutdown()


async def test_a_delayed_key_comes_when_its_time_has_come() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("later", 3600)
    queue.add_after("soon", 0.001)
    async with asyncio.timeout(60):
        assert await queue.get() == "soon"

    assert queue.statistics().delayed == 1
    queue.shutdown()


async def test_of_several_times_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for delay_s in (3600, 0.001, 1800):
        queue.add_after("a", delay_s)
    async with asyncio.timeout(60):
        assert await queue.get() == "a"

    assert queue.statistics().delayed == 0
    queue.shutdown()


async def test_a_time_that_has_passed_is_now() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0)
    queue.add_after("b", -1)

    assert queue.statistics().ready == 2


async def test_shutdown_hands_out_the_rest_and_then_ends() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    queue.add("a")
    queue.add("b")
    assert await waiting == "a"
    queue.shutdown()
    queue.add("late")

    assert await queue.get() == "b"
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_shutdown_wakes_all_who_wait() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shutdown()
    async with asyncio.timeout(60):
        results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(result) for result in results] == [QueueShutDown] * 3


async def test_a_getter_cancelled_at_the_last_moment_leaves_the_key_to_another() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first
    first.cancel()

    async with asyncio.timeout(60):
        assert await second == "a"
    with suppress(asyncio.CancelledError):
        await first


async def test_work_returns_a_key_after_the_time_that_reconcile_asks_for() -> None:
    queue: WorkQueue[str] = WorkQueue()
    calls = []

    async def reconcile(key: str) -> float | None:
        calls.append(key)
        if len(calls) == 3:
            queue.shutdown()
            return None
        return 0.0

    queue.add("a")
    async with asyncio.timeout(60):
        await work(queue, reconcile, workers=2)

    assert calls == ["a", "a", "a"]


@pytest.mark.parametrize("error", [RuntimeError("boom"), Conflict(409, "Conflict", "modified")])
async def test_work_retries_what_fails_and_forgets_what_succeeds(error: Exception) -> None:
    queue: WorkQueue[str] = WorkQueue()
    outcomes = [error, error, None]

    async def reconcile(_key: str) -> None:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome
        queue.shutdown()

    queue.add("a")
    async with asyncio.timeout(60):
        await work(queue, reconcile, workers=1)

    assert queue.statistics().retries == 2
    assert outcomes == []


async def test_a_key_whose_work_was_cancelled_is_not_lost() -> None:
    queue: WorkQueue[str] = WorkQueue()
    started = asyncio.Event()

    async def reconcile(_key: str) -> None:
        started.set()
        await asyncio.Event().wait()

    queue.add("a")
    task = asyncio.create_task(work(queue, reconcile, workers=1))
    await started.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert await queue.get() == "a"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3)),
        st.tuples(st.just("delay"), st.integers(0, 3)),
        st.tuples(st.just("turns"), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(steps=steps, workers=st.integers(1, 4), turns=st.integers(0, 4), failing=st.sets(st.integers(0, 40)))
def test_every_key_is_worked_on_after_it_was_added_and_by_one_worker(
    steps: list[tuple[str, int]], workers: int, turns: int, failing: set[int]
) -> None:
    """Random adds, delays, failures and cancelled getters; reconcile takes a few turns of the loop."""

    async def run() -> None:
        queue: WorkQueue[int] = WorkQueue()
        unseen: set[int] = set()  # keys with an add that no work has begun after
        in_work: set[int] = set()
        calls = 0

        async def reconcile(key: int) -> None:
            nonlocal calls
            calls += 1
            call = calls
            assert key not in in_work, "two workers on one key"
            in_work.add(key)
            unseen.discard(key)
            for _ in range(turns):
                await asyncio.sleep(0)
            in_work.remove(key)
            if call in failing:
                unseen.add(key)
                raise RuntimeError("failed on purpose")

        task = asyncio.create_task(work(queue, reconcile, workers=workers))
        for what, value in steps:
            if what == "add":
                unseen.add(value)
                queue.add(value)
            elif what == "delay":
                unseen.add(value)
                queue.add_after(value, 1e-6)
            elif what == "turns":
                for _ in range(value):
                    await asyncio.sleep(0)
            else:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                unseen |= in_work
                in_work.clear()
                task = asyncio.create_task(work(queue, reconcile, workers=workers))
        async with asyncio.timeout(60):
            while unseen or in_work:
                await asyncio.sleep(0)
        queue.shutdown()
        await task

    with (
        mock.patch("gangline.kube.queue.retry_delay_min_s", 0.0),
        mock.patch("gangline.kube.queue._log_failure"),
    ):
        asyncio.run(run())
