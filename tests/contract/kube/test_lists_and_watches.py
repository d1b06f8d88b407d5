"""Lists in pages, watches, caches, queues and events: the same on every server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.resources import CONFIG_MAPS, EVENTS, PODS
from gangline.kube.cache import Cache
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, Gone
from gangline.kube.events import Recorder
from gangline.kube.queue import WorkQueue, work

Build = Callable[..., dict[str, Any]]
WAIT_S = 60.0


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(objects: list[Any]) -> list[str]:
    return [one["metadata"]["name"] for one in objects if one["metadata"]["name"] != "kube-root-ca.crt"]


async def test_a_list_comes_whole_in_pages_and_by_selectors(
    client: Client, api: Any, config_map: Build
) -> None:
    for index in range(7):
        await client.create(CONFIG_MAPS, config_map(f"c{index}", {"parity": str(index % 2), "x": "y"}))

    whole = await client.list(CONFIG_MAPS, api.namespace, label_selector="x=y", limit=3)
    odd = await client.list(CONFIG_MAPS, api.namespace, label_selector="parity in (1),x")
    one = await client.list(CONFIG_MAPS, api.namespace, field_selector="metadata.name=c4")
    await client.delete(CONFIG_MAPS, "c2", api.namespace)
    moved = {"metadata": {"labels": {"parity": "0"}}}
    await client.patch(CONFIG_MAPS, "c3", moved, namespace=api.namespace)
    even = await client.list(CONFIG_MAPS, api.namespace, label_selector="x,parity=0")
    with pytest.raises(BadRequest):
        await client.list(CONFIG_MAPS, api.namespace, label_selector="a in b")
    with pytest.raises(BadRequest):
        await client.list(CONFIG_MAPS, api.namespace, field_selector="data.a=b")

    assert names(whole.items) == [f"c{index}" for index in range(7)]
    assert names(odd.items) == ["c1", "c3", "c5"]
    assert names(one.items) == ["c4"]
    assert names(even.items) == ["c0", "c3", "c4", "c6"]
    assert int(whole.resource_version) > 0


async def test_pages_and_a_watch_from_their_version_show_everything(
    client: Client, api: Any, config_map: Build
) -> None:
    for index in range(5):
        await client.create(CONFIG_MAPS, config_map(f"c{index}"))
    path = CONFIG_MAPS.path(api.namespace)

    first = await client.request("GET", path, params={"limit": 2})
    left = first["metadata"]["remainingItemCount"]
    await client.create(CONFIG_MAPS, config_map("behind"))
    await client.create(CONFIG_MAPS, config_map("d"))
    second = await client.request(
        "GET", path, params={"limit": 100, "continue": first["metadata"]["continue"]}
    )
    version = second["metadata"]["resourceVersion"]
    watch = client.watch(CONFIG_MAPS, api.namespace, resource_version=version)
    async with asyncio.timeout(WAIT_S), aclosing(watch):
        replayed = [json.loads((await anext(watch)).object) for _ in range(2)]

    assert version == first["metadata"]["resourceVersion"]
    assert len(first["items"]) == 2
    assert left == len(first["items"] + second["items"]) - 2 - len({"d"} & set(names(second["items"])))
    assert names(replayed) == ["behind", "d"]
    assert "continue" not in second["metadata"]


async def test_a_watch_goes_on_from_a_list(client: Client, api: Any, config_map: Build) -> None:
    await client.create(CONFIG_MAPS, config_map("before", {"x": "y"}))
    version = (await client.list(CONFIG_MAPS, api.namespace)).resource_version
    await client.create(CONFIG_MAPS, config_map("w", {"x": "y"}, a="1"))
    await client.patch(CONFIG_MAPS, "w", {"data": {"a": "2"}}, api.namespace)
    await client.patch(CONFIG_MAPS, "w", {"metadata": {"labels": {"x": None}}}, api.namespace)
    await client.patch(CONFIG_MAPS, "w", {"data": {"a": "3"}}, api.namespace)
    await client.delete(CONFIG_MAPS, "before", api.namespace)

    seen = []
    events = client.watch(CONFIG_MAPS, api.namespace, resource_version=version, label_selector="x=y")
    async with asyncio.timeout(WAIT_S), aclosing(events):
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            obj = json.loads(event.object)
            seen.append((event.type, obj["metadata"]["name"], obj.get("data", {}).get("a", "")))
            if len(seen) == 4:
                break

    # The one that stops to match is reported as deleted, as it was when it last matched.
    assert seen == [
        ("ADDED", "w", "1"),
        ("MODIFIED", "w", "2"),
        ("DELETED", "w", "2"),
        ("DELETED", "before", ""),
    ]


async def test_a_deletion_is_newer_than_the_object(client: Client, api: Any, config_map: Build) -> None:
    made = await client.create(CONFIG_MAPS, config_map())
    version = made["metadata"]["resourceVersion"]
    await client.delete(CONFIG_MAPS, "cm", api.namespace)

    events = client.watch(CONFIG_MAPS, api.namespace, resource_version=version)
    async with asyncio.timeout(WAIT_S), aclosing(events):
        event = await anext(events)

    assert event.type == "DELETED"
    assert int(json.loads(event.object)["metadata"]["resourceVersion"]) > int(version)


async def test_a_watch_ends_with_a_bookmark(client: Client, api: Any, config_map: Build) -> None:
    version = (await client.list(CONFIG_MAPS, api.namespace)).resource_version
    params = {
        "watch": True,
        "allowWatchBookmarks": True,
        "resourceVersion": version,
        "timeoutSeconds": 3,
    }

    body = await client.send("GET", CONFIG_MAPS.path(api.namespace), params=params)

    events = [json.loads(line) for line in body.splitlines()]
    assert all(event["type"] == "BOOKMARK" for event in events)
    assert all(event["object"]["kind"] == "ConfigMap" for event in events)
    assert all(int(event["object"]["metadata"]["resourceVersion"]) >= int(version) for event in events)


async def test_versions_of_the_future_and_nonsense_are_refused(client: Client, api: Any) -> None:
    with pytest.raises(BadRequest):
        await client.request("GET", CONFIG_MAPS.path(api.namespace), params={"resourceVersion": "x"})
    with pytest.raises(BadRequest):
        await client.request("GET", CONFIG_MAPS.path(api.namespace), params={"continue": "nonsense"})


async def test_a_version_too_old_is_gone_and_a_cache_lists_again(
    client: Client, api: Any, config_map: Build
) -> None:
    """After its restart a server knows only what it holds."""
    if api.restart is None:
        pytest.skip("a cluster that was given is not restarted")
    await client.create(CONFIG_MAPS, config_map("a", {"x": "y"}))
    cache = Cache(client, CONFIG_MAPS, ConfigMap, namespace=api.namespace, label_selector="x=y")
    async with running(cache.run()):
        await cache.wait_synced()
        await api.restart()
        watch = client.watch(CONFIG_MAPS, api.namespace, resource_version="1")
        with pytest.raises(Gone):
            async with asyncio.timeout(WAIT_S), aclosing(watch):
                await anext(watch)
        await client.create(CONFIG_MAPS, config_map("b", {"x": "y"}))

        async def has_both() -> bool:
            return len(cache.items()) == 2

        await until(has_both)


async def test_a_cache_follows_every_change(client: Client, api: Any, config_map: Build) -> None:
    await client.create(CONFIG_MAPS, config_map("a", {"x": "y"}, n="0"))
    cache = Cache(client, CONFIG_MAPS, ConfigMap, namespace=api.namespace, label_selector="x=y")
    cache.add_index("n", lambda one: [one.data.get("n", "")])
    changes: list[tuple[str, str]] = []

    def note(old: ConfigMap | None, new: ConfigMap | None) -> None:
        one = new or old
        assert one is not None
        kind = "changed" if old and new else "added" if new else "lost"
        changes.append((kind, one.metadata.name))

    cache.on_change(note)
    async with running(cache.run()):
        await cache.wait_synced()
        await client.create(CONFIG_MAPS, config_map("b", {"x": "y"}, n="1"))
        await client.create(CONFIG_MAPS, config_map("other"))
        await client.patch(CONFIG_MAPS, "a", {"data": {"n": "1"}}, api.namespace)
        await client.delete(CONFIG_MAPS, "b", api.namespace)
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": None}}, api.namespace)

        async def is_empty() -> bool:
            return not cache.items()

        await until(is_empty)

    assert changes == [("added", "a"), ("added", "b"), ("changed", "a"), ("lost", "b"), ("lost", "a")]
    assert cache.by_index("n", "1") == []
    assert cache.statistics().lists == 1


async def test_a_loop_of_cache_and_queue_brings_everything_where_it_should_be(
    client: Client, api: Any, pod: Build
) -> None:
    """The smallest controller: every pod gets a phase. Two workers, one key each at a time."""
    queue: WorkQueue[str] = WorkQueue()
    cache = Cache(client, PODS, Pod, namespace=api.namespace)
    cache.on_change(lambda old, new: queue.add((new or old).metadata.key))  # type: ignore[union-attr]
    in_work: set[str] = set()

    async def reconcile(key: str) -> None:
        assert key not in in_work
        in_work.add(key)
        one = cache.get(key)
        if one and one.status.phase == "Pending":
            name = one.metadata.name
            await client.patch(
                PODS, name, {"status": {"phase": "Running"}}, api.namespace, subresource="status"
            )
        in_work.discard(key)

    async with running(cache.run()), running(work(queue, reconcile, workers=2)):
        for index in range(10):
            await client.create(PODS, pod(f"p{index}"))

        async def all_run() -> bool:
            found = cache.items()
            return len(found) == 10 and all(one.status.phase == "Running" for one in found)

        await until(all_run)

    assert queue.statistics().retries == 0


async def test_events_are_counted_up(client: Client, api: Any, pod: Build) -> None:
    made = await client.create(PODS, pod())
    recorder = Recorder(client, "contract")
    for message in ("again", "again", "x" * 3000):
        recorder.event(made, "Warning", "Tried", message)
    await recorder.flush()
    await recorder.close()

    found = (await client.list(EVENTS, api.namespace, field_selector="involvedObject.name=p")).items

    ours = [event for event in found if event["source"].get("component") == "contract"]
    assert sorted(event["count"] for event in ours) == [1, 2]
    assert {event["involvedObject"]["uid"] for event in ours} == {made["metadata"]["uid"]}
    assert max(len(event["message"]) for event in ours) <= 1024
    assert recorder.dropped_count == 0
