"""Leader election against a lease in memory and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.resources import LEASES
from gangline.kube.lease import LeaderElection, LeadershipLost, LeaseTiming

TIMING = LeaseTiming(duration_s=15, renew_deadline_s=10, retry_s=3)


class Clock:
    """Time passes when everybody sleeps: then the earliest sleeper wakes."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, delay_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + delay_s, future))
        await future

    async def until(self, condition: Callable[[], bool], limit_s: float = 120.0) -> None:
        end_s = self.now_s + limit_s
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if condition():
                return
            self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[1].done()]
            assert self._sleepers and min(self._sleepers)[0] <= end_s, "it does not come"
            self._sleepers.sort(key=lambda sleeper: sleeper[0])
            due_s, future = self._sleepers.pop(0)
            self.now_s = max(self.now_s, due_s)
            future.set_result(None)


class Leases(FakeClient):
    """A server that can be out of reach, and its one lease."""

    @property
    def writes(self) -> int:
        return int(self.lease["metadata"]["resourceVersion"])

    @property
    def lease(self) -> dict[str, Any]:
        return self._find(LEASES, "operator", "ns")

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.lease["spec"])


class Candidate:
    """A process that wants to lead, and forever once it does."""

    def __init__(self, leases: Leases, clock: Clock, identity: str, **annotations: str) -> None:
        self.election = LeaderElection(
            leases,
            "operator",
            "ns",
            identity=identity,
            timing=TIMING,
            annotations=annotations,
            now_s=lambda: clock.now_s,
            sleep=clock.sleep,
        )
        self.is_at_work = False
        self.task = asyncio.create_task(self.election.run(self._lead))

    async def _lead(self) -> None:
        self.is_at_work = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.is_at_work = False

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def test_what_a_leader_says_of_itself_stands_on_the_lease_until_another_leads() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one", levels="rack")
    await clock.until(lambda: one.is_at_work)
    first = leases.spec["renewTime"]
    await clock.until(lambda: leases.spec["renewTime"] != first)

    assert leases.lease["metadata"]["annotations"] == {"levels": "rack"}

    await one.stop()
    two = Candidate(leases, clock, "two")
    await clock.until(lambda: two.is_at_work)

    assert "annotations" not in leases.lease["metadata"]
    await two.stop()


async def test_the_first_creates_the_lease_and_leads() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")

    await clock.until(lambda: one.is_at_work)

    assert one.election.is_leader
    assert leases.spec["holderIdentity"] == "one"
    assert (leases.spec["leaseDurationSeconds"], leases.spec["leaseTransitions"]) == (15, 0)
    assert leases.spec["acquireTime"] == leases.spec["renewTime"]
    await one.stop()


async def test_a_leader_renews_and_keeps_its_time_of_acquisition() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)
    first = leases.spec

    await clock.until(lambda: leases.writes == 5)

    assert clock.now_s == 1000 + 4 * TIMING.retry_s
    assert leases.spec["acquireTime"] == first["acquireTime"]
    assert leases.spec["leaseTransitions"] == 0
    await one.stop()


async def test_the_second_waits_and_takes_over_at_once_when_the_lease_is_given_back() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)
    two = Candidate(leases, clock, "two")
    await clock.until(lambda: leases.writes == 8)
    assert not two.is_at_work
    assert two.election.holder == "one"

    await one.stop()
    assert leases.spec["holderIdentity"] == ""
    given_back_s = clock.now_s
    await clock.until(lambda: two.is_at_work)

    assert clock.now_s - given_back_s <= TIMING.retry_s * 1.2
    assert leases.spec["leaseTransitions"] == 1
    await two.stop()


async def test_a_leader_that_vanished_is_succeeded_a_lease_after_it_was_last_seen() -> None:
    clock, leases = Clock(), Leases()
    spec = {
        "holderIdentity": "gone",
        "leaseDurationSeconds": 15,
        "renewTime": "2001-01-01T00:00:00.000000Z",  # by a clock that we need not trust
        "leaseTransitions": 4,
    }
    await leases.create(LEASES, {"metadata": {"name": "operator", "namespace": "ns"}, "spec": spec})
    two = Candidate(leases, clock, "two")

    await clock.until(lambda: two.is_at_work)

    assert 15 < clock.now_s - 1000 <= 15 + TIMING.retry_s * 1.2
    assert leases.spec["leaseTransitions"] == 5
    await two.stop()


async def test_a_leader_without_a_server_stops_before_others_may_start() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)
    renewed_s = clock.now_s
    leases.is_away = True

    await clock.until(lambda: one.task.done())

    assert clock.now_s - renewed_s <= TIMING.duration_s
    assert not one.is_at_work
    with pytest.raises(LeadershipLost):
        one.task.result()
    assert not one.election.is_leader


async def test_a_short_outage_costs_nothing() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)
    away_s = clock.now_s
    leases.is_away = True
    await clock.until(lambda: clock.now_s >= away_s + 6)
    leases.is_away = False

    await clock.until(lambda: leases.writes == 4)

    assert one.is_at_work
    await one.stop()


async def test_a_lease_that_somebody_else_took_ends_the_work() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)
    await leases.patch(LEASES, "operator", {"spec": {"holderIdentity": "thief"}}, "ns")

    await clock.until(lambda: one.task.done())

    with pytest.raises(LeadershipLost, match="thief"):
        one.task.result()
    assert leases.spec["holderIdentity"] == "thief"


async def test_a_lease_is_given_back_behind_a_renewal_that_was_cut_off_after_it_was_written() -> None:
    clock, leases = Clock(), Leases()
    written = asyncio.Event()
    one = Candidate(leases, clock, "one")
    await clock.until(lambda: one.is_at_work)

    async def write_and_never_answer(_: Any, obj: dict[str, Any]) -> dict[str, Any]:
        del leases.update  # type: ignore[attr-defined]
        await leases.update(LEASES, obj)
        written.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    leases.update = write_and_never_answer  # type: ignore[method-assign]
    await clock.until(written.is_set)
    await one.stop()

    assert leases.spec["holderIdentity"] == ""


async def test_an_error_of_the_work_comes_out_and_gives_the_lease_back() -> None:
    clock, leases = Clock(), Leases()
    election = LeaderElection(
        leases, "operator", "ns", timing=TIMING, now_s=lambda: clock.now_s, sleep=clock.sleep
    )

    async def fail() -> None:
        raise RuntimeError("defect")

    with pytest.raises(RuntimeError, match="defect"):
        await election.run(fail)
    assert leases.spec["holderIdentity"] == ""


async def test_a_leader_that_hangs_is_unhealthy() -> None:
    clock, leases = Clock(), Leases()
    one = Candidate(leases, clock, "one")
    assert one.election.is_healthy()
    await clock.until(lambda: one.is_at_work)

    clock.now_s += TIMING.duration_s + 19
    assert one.election.is_healthy()
    clock.now_s += 2

    assert not one.election.is_healthy()
    await one.stop()


@pytest.mark.parametrize("times_s", [(10, 10, 3), (15, 3, 3), (15, 10, 0)])
def test_times_that_cannot_work_are_refused(times_s: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="a lease needs"):
        LeaseTiming(*times_s)
