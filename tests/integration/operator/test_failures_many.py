"""Three hundred jobs of a kind at once: each gets its pods once, half of them are suspended, all end well."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gangline.api.core import AnyObject
from gangline.api.resources import JOBS, PODS
from gangline.kube.cache import Cache

from .jobs_of_kinds import ALL_KINDS, MPI, KindOfJob

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOB_COUNT = 300
AT_ONCE = 24
LIMIT_S = 180.0


async def each(work: Iterable[Awaitable[Any]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: Awaitable[Any]) -> None:
        async with slots:
            await task

    await asyncio.gather(*(one(task) for task in work))


@asynccontextmanager
async def counted_pods(cluster: Any) -> AsyncIterator[tuple[Cache[AnyObject], Counter[str]]]:
    """Have a cache of the pods, and how many pods ever had a name."""
    made: Counter[str] = Counter()
    cache: Cache[AnyObject] = Cache(cluster.client, PODS, AnyObject, namespace=cluster.namespace)

    def note(old: AnyObject | None, new: AnyObject | None) -> None:
        if new is not None and (old is None or old.metadata.uid != new.metadata.uid):
            made[new.metadata.name] += 1

    cache.on_change(note)
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced()
        yield cache, made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
async def test_three_hundred_jobs_at_once(cluster: Any, kind: KindOfJob) -> None:
    names = [f"job-{index:03}" for index in range(JOB_COUNT)]
    suspended, kept = names[::2], names[1::2]
    count = len(kind.pods) + (kind is MPI)

    async with counted_pods(cluster) as (pods, made):

        async def there(jobs: int) -> None:
            async def are_there() -> bool:
                return len(pods.items()) == jobs * count

            await cluster.until(are_there, LIMIT_S)

        await each(
            cluster.client.create(kind.resource, kind.manifest(cluster.namespace, name)) for name in names
        )
        await there(JOB_COUNT)
        await each(
            cluster.client.patch(kind.resource, name, kind.suspension(True), cluster.namespace)
            for name in suspended
        )
        await there(len(kept))
        await each(
            cluster.client.patch(kind.resource, name, kind.suspension(False), cluster.namespace)
            for name in suspended
        )
        await there(JOB_COUNT)
        for phase in ("Running", "Succeeded"):
            await each(
                cluster.set_phase(
                    {"metadata": {"name": pod.metadata.name, "namespace": cluster.namespace}}, phase
                )
                for pod in pods.items()
            )
            await cluster.settle()

    async def are_done() -> bool:
        jobs = (await cluster.client.list(kind.resource, cluster.namespace)).items
        done = [
            one for job in jobs for one in job["status"].get("conditions", []) if one["type"] == kind.done
        ]
        return len(done) == JOB_COUNT and all(one["status"] == "True" for one in done)

    await cluster.until(are_done, LIMIT_S)
    doubled = {
        name: times
        for name, times in made.items()
        if not (kind is MPI and "-launcher-" in name) and times != (2 if name[:7] in suspended else 1)
    }
    assert doubled == {}
    assert len(made) == JOB_COUNT * count + (len(suspended) if kind is MPI else 0)
    if kind is MPI:
        assert len((await cluster.client.list(JOBS, cluster.namespace)).items) == JOB_COUNT
