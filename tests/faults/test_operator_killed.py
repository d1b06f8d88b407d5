"""An operator that is killed again and again: jobs end as they would have, and nothing is made twice.

The process dies at writes, chosen by a seed: when the request has arrived and the server has not seen it, or
when the server has done it and the answer is on its way. Another test runs two at once.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import FaultProxy, Request, faulty, nothing
from job_mix import SHAPES
from played_job import Played, Shape, World, events_of, settle
from prepared_server import direct, prepared
from service_process import LEADERSHIP_LOST, PROGRAM
from training_mix import TRAINING_SHAPES

from gangline.kube.client import Client

MIXES = {"MPIJobs": SHAPES, "training jobs": TRAINING_SHAPES}
job_count = 50
jobs_at_once = 5
kill_count = 100
writes_between_max = 10
"""A process dies at one of its first so many writes; renewals of the Lease are not counted."""

idle_limit_s = 1.5
"""One that leads and finds nothing to write for so long is killed where it is."""

start_limit_s = 60.0


@dataclass
class Killer:
    """Starts operators, one after another, and kills them."""

    proxy: FaultProxy
    namespace: str
    seed: int
    log: Path
    lease_s: float = 1.0
    kills: int = 0
    lives: int = 1
    at_writes: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._process: asyncio.subprocess.Process | None = None
        self._left = 0
        self._is_after = False
        self._wrote_s: float | None = None
        self._last: asyncio.Task[None] | None = None
        self.proxy.seen = self._count

    async def start(self) -> asyncio.subprocess.Process:
        connection = self.proxy.connection()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(PROGRAM), "operator", connection.server, self.namespace),
                *(str(self.lease_s), connection.token or ""),
                stdout=log,
                stderr=log,
            )
        return self._process

    async def run(self, count: int) -> None:
        """Kill so many, and leave one that lives, until `stop`."""
        while self.kills < count:
            process = await self.start()
            self._left = self._chance.randint(1, writes_between_max)
            self._is_after = self._chance.random() < 0.5
            self._wrote_s = None
            await self._until_dead(process)
            assert process.returncode in (-signal.SIGKILL, LEADERSHIP_LOST), self.log.read_text()[-3000:]
            self.kills += process.returncode == -signal.SIGKILL
            self.lives += 1
        self._left = 0
        self._last = asyncio.create_task(self._keep_alive(await self.start()))

    async def _keep_alive(self, process: asyncio.subprocess.Process) -> None:
        """Start the last one again where it could not renew its Lease in time, on a busy machine."""
        while await process.wait() == LEADERSHIP_LOST:
            self.lives += 1
            process = await self.start()

    async def _until_dead(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of a process, and bring it about when it has nothing to do."""
        loop = asyncio.get_running_loop()
        ends = asyncio.ensure_future(process.wait())
        started_s = loop.time()
        while not ends.done():
            since_s, limit_s = (self._wrote_s, idle_limit_s) if self._wrote_s else (started_s, start_limit_s)
            left_s = since_s + limit_s - loop.time()
            if left_s <= 0:
                process.kill()
            await asyncio.wait([ends], timeout=max(left_s, 0.05))

    async def stop(self) -> None:
        if self._last:
            self._last.cancel()
            await asyncio.gather(self._last, return_exceptions=True)
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _count(self, request: Request, is_done: bool) -> None:
        if request.is_write and not (request.is_lease and self._wrote_s):  # its first Lease, and what follows
            self._wrote_s = asyncio.get_running_loop().time()
        if not request.is_write or request.is_lease or is_done != self._is_after or not self._left:
            return
        self._left -= 1
        if not self._left and self._process and self._process.returncode is None:
            self._process.kill()
            self.at_writes += 1


@asynccontextmanager
async def behind_proxy(api: Any) -> AsyncIterator[tuple[FaultProxy, World]]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(direct(api)))
        await stack.enter_async_context(prepared(client, embedded=bool(api.embedded)))
        proxy = await stack.enter_async_context(faulty(direct(api), nothing()))
        yield proxy, await stack.enter_async_context(World(client, api.namespace).running())


async def play_all(jobs: list[Played], is_due: Callable[[int], bool] = lambda index: True) -> None:
    """Play jobs, some at a time, each not before it is due."""
    slots = asyncio.Semaphore(jobs_at_once)

    async def play(index: int, job: Played) -> None:
        async with slots:
            while not is_due(index):
                await asyncio.sleep(0.05)
            await job.play()

    await asyncio.gather(*(play(index, job) for index, job in enumerate(jobs)))


async def check_killed(api: Any, tmp_path: Path, mix: tuple[Shape, ...], *, jobs: int, kills: int) -> Killer:
    async with behind_proxy(api) as (proxy, world):
        shapes = [mix[index % len(mix)] for index in range(jobs)]
        played = [Played(world, shape, f"{shape.name}-{index}") for index, shape in enumerate(shapes)]
        killer = Killer(proxy, api.namespace, seed=1, log=tmp_path / "operator.log")
        try:
            killing = asyncio.create_task(killer.run(kills))
            await play_all(played, lambda index: killer.kills >= kills * index // jobs)
            await settle(world, played)
            await killing
            await settle(world, played)
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await killer.stop()
        told = await events_of(world)
        assert killer.kills == kills
        assert all(count <= told_max(key, killer.lives) for key, count in told.items()), told
        assert "Traceback" not in killer.log.read_text()
        print(f"{kills} kills, {killer.at_writes} of them at a write, during {jobs} jobs")
        return killer


def told_max(key: tuple[str, str, str], lives: int) -> int:
    """A change of a job is told once; what still holds, once by each process."""
    return 3 if key[1] == "Normal" and not key[2].startswith("ExitedWithCode") else lives


@pytest.mark.parametrize("mix", MIXES)
async def test_jobs_end_though_the_operator_is_killed_at_its_writes(
    api: Any, tmp_path: Path, mix: str
) -> None:
    await check_killed(api, tmp_path, MIXES[mix], jobs=len(MIXES[mix]), kills=6)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mix", MIXES)
async def test_jobs_end_though_the_operator_is_killed_a_hundred_times(
    api: Any, tmp_path: Path, mix: str
) -> None:
    killer = await check_killed(api, tmp_path, MIXES[mix], jobs=job_count, kills=kill_count)
    assert killer.at_writes > kill_count // 2


async def test_of_two_operators_one_writes(api: Any, tmp_path: Path) -> None:
    async with behind_proxy(api) as (proxy, world):
        writes: Counter[str] = Counter()

        def note(name: str) -> Callable[[Request, bool], None]:
            return lambda request, is_done: writes.update({name: request.is_write and not request.is_lease})

        async with faulty(direct(api), nothing()) as other:
            first = Killer(proxy, api.namespace, 1, tmp_path / "first.log", lease_s=30.0)
            second = Killer(other, api.namespace, 2, tmp_path / "second.log", lease_s=30.0)
            proxy.seen, other.seen = note("first"), note("second")
            jobs = [Played(world, shape) for shape in SHAPES]
            try:
                await asyncio.gather(first.start(), second.start())
                await play_all(jobs)
                await settle(world, jobs)
            finally:
                await asyncio.gather(first.stop(), second.stop())
        assert sorted(count > 0 for count in writes.values()) == [False, True], writes
