"""Jobs end as they would have, whatever goes wrong between operator and API server.

Out of scope: an operator that dies (`test_operator_killed.py`), a server that does (`tests/integration`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from fault_proxy import (
    Answer,
    FaultProxy,
    Rule,
    a_tenth,
    answers_cut_short,
    answers_lost,
    every_watch_cut,
    faulty,
    nothing,
    slow,
    versions_too_old,
)
from job_mix import GANGS, SHAPES, as_gang
from played_job import Played, World, events_of, settle
from prepared_server import direct, prepared
from training_mix import TRAINING_SHAPES

from gangline.api.resources import NAMESPACES
from gangline.jobs.settings import Settings
from gangline.kube.client import Client
from gangline.operator.operator import Operator

FAULTS: dict[str, Callable[[], Rule]] = {
    "none": nothing,
    "watches that end after every event": lambda: every_watch_cut(cleanly=True),
    "watches that break in the middle of an event": lambda: every_watch_cut(cleanly=False),
    "410 on lists, pages and watches": versions_too_old,
    "429 on a tenth": lambda: a_tenth(Answer(429, "TooManyRequests", retry_after_s=1), seed=1),
    "500 on a tenth": lambda: a_tenth(Answer(500, "InternalError"), seed=2),
    "slow answers": lambda: slow(seed=3),
    "answers cut short": lambda: answers_cut_short(seed=4),
    "answers lost": lambda: answers_lost(seed=5),
}
sleep_max_s = 0.1
"""A server asks for whole seconds; these tests do not wait them out."""

told_max = 3
"""The most that a script brings about: suspended at first, and again; running each time."""


async def nap(delay_s: float) -> None:
    await asyncio.sleep(min(delay_s, sleep_max_s))


@asynccontextmanager
async def operating(connection: Any, namespace: str, settings: Settings) -> AsyncIterator[Operator]:
    async with Client(connection, sleep=nap) as client:
        operator = Operator(client, namespace=namespace, settings=settings)
        task = asyncio.create_task(operator.run())
        try:
            yield operator
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def two_operators(
    api: Any, rule: Rule
) -> AsyncIterator[tuple[FaultProxy, list[World], list[Operator]]]:
    """An operator without gangs and one with, each in a namespace of its own, behind one proxy."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(direct(api)))
        await stack.enter_async_context(prepared(client, embedded=bool(api.embedded)))
        gangs = f"gangs-{uuid.uuid4().hex[:8]}"
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gangs}}
        )
        proxy = await stack.enter_async_context(faulty(direct(api), rule))
        worlds, operators = [], []
        for namespace, settings in ((api.namespace, Settings()), (gangs, GANGS)):
            worlds.append(await stack.enter_async_context(World(client, namespace).running()))
            operators.append(
                await stack.enter_async_context(operating(proxy.connection(), namespace, settings))
            )
        yield proxy, worlds, operators
        if not api.embedded:
            await client.delete(NAMESPACES, gangs)


def mix(worlds: list[World]) -> list[Played]:
    plain, gangs = worlds
    return [
        *(Played(plain, shape) for shape in (*SHAPES, *TRAINING_SHAPES)),
        *(Played(gangs, as_gang(shape)) for shape in SHAPES),
    ]


async def check_end(worlds: list[World], jobs: list[Played]) -> None:
    """All jobs have ended as their scripts say, and nothing was told again and again."""
    for world in worlds:
        await settle(world, [job for job in jobs if job.world is world])
        told = await events_of(world)
        assert all(count <= told_max for count in told.values()), told


@pytest.mark.parametrize("fault", FAULTS)
async def test_jobs_end_as_without(api: Any, fault: str) -> None:
    async with two_operators(api, FAULTS[fault]()) as (proxy, worlds, _):
        jobs = mix(worlds)

        await asyncio.gather(*(job.play() for job in jobs))

        await check_end(worlds, jobs)
        assert fault == "none" or sum(proxy.counts.values()) > proxy.counts["passed"] > 0


async def check_away(api: Any, away_s: float, away: Callable[[FaultProxy], Awaitable[None]]) -> None:
    """Have the server go away while jobs are in all states, one job begin meanwhile, and all end after."""
    async with two_operators(api, nothing()) as (proxy, worlds, operators):
        jobs = mix(worlds)
        playing = asyncio.gather(*(job.play() for job in jobs))
        await worlds[0].until(lambda: sum(map(_has_run, jobs)) >= len(jobs) // 4)
        failures = failures_of(operators)

        await away(proxy)
        late = Played(worlds[0], SHAPES[0], "late")
        playing = asyncio.gather(playing, late.play())
        await asyncio.sleep(away_s)
        await proxy.come_back()

        await playing
        await check_end(worlds, [*jobs, late])
        assert away is FaultProxy.hang or failures_of(operators) > failures


def _has_run(job: Played) -> bool:
    """Whether a job runs or has run: many end sooner than as many run at once."""
    conditions = job.object.get("status", {}).get("conditions", [])
    return any(one["type"] == "Running" for one in conditions)


def failures_of(operators: list[Operator]) -> int:
    """Return how many lists and watches have failed."""
    return sum(cache.statistics().failures for operator in operators for cache in operator._caches)


AWAY = {"refused": FaultProxy.refuse, "hanging": FaultProxy.hang}


@pytest.mark.parametrize("how", AWAY)
async def test_jobs_end_after_the_server_was_away(api: Any, how: str) -> None:
    await check_away(api, 1.0, AWAY[how])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", AWAY)
async def test_jobs_end_after_the_server_was_away_for_half_a_minute(api: Any, how: str) -> None:
    await check_away(api, 35.0, AWAY[how])  # longer than a request waits
