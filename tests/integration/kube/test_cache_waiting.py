"""The cache as a command that waits uses it: from a known version on, all objects at once, failures told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from aiohttp import web

from gangline.api.resources import PODS, Resource
from gangline.kube.backoff import Backoff
from gangline.kube.cache import Cache
from gangline.kube.errors import Forbidden

AT_ONCE = Backoff(delay_min_s=0.0)


async def looks(cache: Cache[Any], *, want: int) -> list[list[str]]:
    """Run a cache until all its objects were told that often; return their names each time."""
    found: list[list[str]] = []
    enough = asyncio.Event()

    def take(objects: list[dict[str, Any]]) -> None:
        found.append([obj["metadata"]["name"] for obj in objects])
        if len(found) == want:
            enough.set()

    cache.on_objects(take)
    task = asyncio.create_task(cache.run())
    async with asyncio.timeout(60):
        await enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


async def test_what_happened_since_a_known_version_is_told_though_nothing_is_left_of_it(server: Any) -> None:
    since = str(server.version)
    for name in "ab":
        await server.put(name)
    await server.put("a")
    for name in "ab":
        await server.remove(name)
    async with server.client() as client:
        cache = Cache(client, PODS, dict, backoff=AT_ONCE, since=since)

        assert await looks(cache, want=5) == [["a"], ["a", "b"], ["a", "b"], ["b"], []]
    assert cache.statistics().lists == 0


async def test_what_is_left_is_told_where_the_server_has_forgotten_the_known_version(server: Any) -> None:
    since = str(server.version)
    for name in "ab":
        await server.put(name)
    await server.remove("a")
    await server.compact()
    async with server.client() as client:
        cache = Cache(client, PODS, dict, backoff=AT_ONCE, since=since)

        assert await looks(cache, want=1) == [["b"]]


async def test_who_is_told_of_failures_may_end_it_and_hears_how_long_they_last(
    server: Any, make_status: Any
) -> None:
    told: list[tuple[str, float]] = []

    async def on_failure(error: Exception, failing_s: float) -> None:
        told.append((type(error).__name__, failing_s))
        if isinstance(error, Forbidden):
            raise error

    for code, times in ((503, 12), (403, 1)):
        answer = make_status(code, "")
        server.answers += times * [lambda answer=answer, code=code: web.json_response(answer, status=code)]
    async with server.client(sleep=lambda _s: asyncio.sleep(0)) as client:
        cache = Cache(client, PODS, dict, backoff=AT_ONCE, on_failure=on_failure)
        async with asyncio.timeout(60):
            with pytest.raises(Forbidden):
                await cache.run()

    assert [name for name, _ in told] == (len(told) - 1) * ["Unavailable"] + ["Forbidden"]
    assert [failing_s for _, failing_s in told] == sorted(failing_s for _, failing_s in told)
    assert told[0][1] < told[-1][1], "counted from the first failure on, without a list between"


async def test_an_error_of_who_is_told_all_objects_ends_it(server: Any) -> None:
    def fail(_objects: list[Any]) -> None:
        raise BrokenPipeError

    async with server.client() as client:
        cache = Cache(client, PODS, dict, backoff=AT_ONCE)
        cache.on_objects(fail)
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(cache.run(), 60)


async def test_a_kind_that_is_not_installed_is_no_fault(server: Any) -> None:
    sets = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
    async with server.client() as client:
        cache = Cache(client, sets, dict, backoff=AT_ONCE)
        with structlog.testing.capture_logs() as logs:
            running = asyncio.create_task(cache.run())
            async with asyncio.timeout(60):
                assert not await cache.wait_known()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    assert [entry["log_level"] for entry in logs if entry["log_level"] != "debug"] == ["info"]
