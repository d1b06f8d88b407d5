"""An operator that finds everything as it should be writes nothing: neither again, nor after a new start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from job_mix import SHAPES
from played_job import Played, World
from prepared_server import direct, prepared

from gangline.kube.client import Client
from gangline.operator.children import JobKey
from gangline.operator.operator import Operator


async def is_running(job: Played) -> None:
    await job.runs()


async def is_suspended(job: Played) -> None:
    await job.until(lambda: job.has("Suspended"))


def shapes() -> list[Any]:
    """Return jobs that ended, and some that still run or wait."""
    halted = [
        replace(
            shape, name=f"{shape.name}-halted", script=is_suspended if shape.name == "resumed" else is_running
        )
        for shape in SHAPES
        if shape.name != "refused"
    ]
    return [*(shape for shape in SHAPES if shape.name != "deleted"), *halted]


@asynccontextmanager
async def operating(api: Any) -> AsyncIterator[tuple[Client, Operator]]:
    async with Client(direct(api)) as client:
        operator = Operator(client, namespace=api.namespace)
        task = asyncio.create_task(operator.run())
        try:
            yield client, operator
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def writes(client: Client) -> int:
    return sum(count for (method, _), count in client.answers().items() if method != "GET")


async def looked(operator: Operator, count: int) -> None:
    """Wait until so many looks were taken and nothing is left to look at."""
    async with asyncio.timeout(60):
        while True:
            queue = operator._queue.statistics()
            if operator.statistics().reconcile.count >= count and not (queue.ready or queue.in_work):
                break
            await asyncio.sleep(0.01)
    await operator.flush_events()


async def test_unchanged_jobs_are_looked_at_and_left_alone(api: Any) -> None:
    async with (
        Client(direct(api)) as watching,
        prepared(watching, embedded=bool(api.embedded)),
        World(watching, api.namespace).running() as world,
    ):
        jobs = [Played(world, shape) for shape in shapes()]
        async with operating(api) as (_, first):
            await asyncio.gather(*(job.play() for job in jobs))
            ended = [job for job in jobs if not job.name.endswith("-halted")]
            await world.until(lambda: not any(job.problems() for job in ended))
            await looked(first, len(jobs))

        async with operating(api) as (client, second):
            await looked(second, len(jobs))
            assert writes(client) == 0
            before = second.statistics().reconcile.count
            for job in jobs:
                second._queue.add(JobKey("MPIJob", api.namespace, job.name))
            await looked(second, before + len(jobs))
            assert writes(client) == 0
