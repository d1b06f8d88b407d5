"""Watches over HTTP. Every watch here ends by itself: timeoutSeconds, or the server closes it."""

import asyncio
import json
from typing import Any

import pytest

from gangline.cluster.server.store import events
from gangline.cluster.server.verbs import watching

Api = Any
"""The client of conftest.py."""

MAPS = "/api/v1/namespaces/default/configmaps"


class Stream:
    """An open watch, read event by event."""

    def __init__(self, api: Api, path: str, accept: str = "application/json", **params: Any) -> None:
        self._context = api.session.get(path, params={"watch": "true", **params}, headers={"Accept": accept})

    async def __aenter__(self) -> "Stream":
        self._response = await self._context.__aenter__()
        assert self._response.status == 200
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._context.__aexit__(*details)

    async def next(self) -> tuple[str, dict[str, Any]]:
        line = await asyncio.wait_for(self._response.content.readline(), 60)
        assert line, "the stream has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def ended(self) -> bool:
        return await asyncio.wait_for(self._response.content.readline(), 60) == b""


async def put(api: Api, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = await api.create(MAPS, {"metadata": {"name": name, "labels": labels or {}}})
    return made


async def revision(api: Api) -> str:
    return str((await api.get(MAPS))["metadata"]["resourceVersion"])


async def test_watch_from_a_revision_sees_later_changes_in_order(api: Api) -> None:
    await put(api, "before")
    start = await revision(api)
    async with Stream(api, MAPS, resourceVersion=start) as stream:
        made = await put(api, "a")
        changed = await api.patch(f"{MAPS}/a", {"data": {"x": "1"}})
        await api.delete(f"{MAPS}/a")

        events = [await stream.next() for _ in range(3)]

    assert [type_ for type_, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0][1] == made and events[1][1] == changed
    assert events[2][1]["data"] == {"x": "1"}
    revisions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert revisions == sorted(set(revisions)) and revisions[0] > int(start)
    assert all(obj["kind"] == "ConfigMap" and obj["apiVersion"] == "v1" for _, obj in events)


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_watch_from_nowhere_begins_with_what_is_there(api: Api, params: dict[str, str]) -> None:
    await put(api, "a")
    await put(api, "b")
    async with Stream(api, MAPS, **params) as stream:
        first = [await stream.next(), await stream.next()]
        await put(api, "c")
        third = await stream.next()

    assert [(type_, obj["metadata"]["name"]) for type_, obj in [*first, third]] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("ADDED", "c"),
    ]


@pytest.mark.parametrize("value", ["true", "True", "1", ""])
async def test_any_true_value_watches(api: Api, value: str) -> None:
    await put(api, "a")

    status, text = await api.request("GET", MAPS, accept="*/*", timeoutSeconds=1, watch=value or " ")

    assert status == 200 and text[0]["type"] == "ADDED"


async def test_object_that_stops_matching_is_deleted_and_one_that_starts_is_added(api: Api) -> None:
    await put(api, "a", {"app": "x"})
    async with Stream(api, MAPS, labelSelector="app=x", resourceVersion=await revision(api)) as stream:
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"other": "1"}}})
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "z"}}})
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        await api.delete(f"{MAPS}/a")

        types = [(await stream.next())[0] for _ in range(4)]

    assert types == ["MODIFIED", "DELETED", "ADDED", "DELETED"]


async def test_watch_of_one_name_sees_only_it(api: Api) -> None:
    start = await revision(api)
    async with Stream(api, MAPS, fieldSelector="metadata.name=b", resourceVersion=start) as stream:
        await put(api, "a")
        await put(api, "b")
        _, obj = await stream.next()

    assert obj["metadata"]["name"] == "b"


async def test_watch_list_ends_the_initial_events_with_a_marked_bookmark(api: Api) -> None:
    await put(api, "a")
    params = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with Stream(api, MAPS, **params) as stream:
        added, bookmark = await stream.next(), await stream.next()
        await put(api, "b")
        live = await stream.next()

    assert added[0] == "ADDED" and bookmark[0] == "BOOKMARK" and live[0] == "ADDED"
    assert bookmark[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark[1]["kind"] == "ConfigMap"
    status, body = await api.request("GET", MAPS, watch="true", sendInitialEvents="true")
    assert (status, body["reason"]) == (422, "Invalid")


async def test_bookmarks_come_periodically_and_before_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BOOKMARK_PERIOD_S", 0.05)
    await put(api, "a")
    start = await revision(api)
    async with Stream(api, MAPS, resourceVersion=start, allowWatchBookmarks="true") as stream:
        bookmarks = [await stream.next(), await stream.next()]

    assert [(type_, obj["metadata"]) for type_, obj in bookmarks] == [
        ("BOOKMARK", {"resourceVersion": start})
    ] * 2


async def test_watch_ends_cleanly_at_its_timeout(api: Api) -> None:
    async with Stream(api, MAPS, resourceVersion=await revision(api), timeoutSeconds="1") as stream:
        assert await stream.ended()


async def test_revision_too_old_is_gone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RING_CHANGES_MAX", 5)
    start = await revision(api)
    for n in range(8):
        await put(api, f"m{n}")

    status, body = await api.request("GET", MAPS, resourceVersion=start, timeoutSeconds=1, watch="true")

    assert (status, body["reason"]) == (410, "Expired")


async def test_watcher_that_falls_behind_is_disconnected_not_thinned(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "WATCHER_CHANGES_MAX", 2)
    start = await revision(api)
    async with Stream(api, MAPS, resourceVersion=start) as stream:
        bodies = [{"metadata": {"name": f"m{n}"}} for n in range(30)]
        await asyncio.gather(*(api.create(MAPS, body) for body in bodies))
        names = []
        while line := await asyncio.wait_for(stream._response.content.readline(), 60):
            names.append(json.loads(line)["object"]["metadata"]["resourceVersion"])

    wanted = sorted(int(item["metadata"]["resourceVersion"]) for item in (await api.get(MAPS))["items"])
    assert [int(name) for name in names] == wanted[: len(names)]


async def test_tables_are_watched_row_by_row_with_columns_once(api: Api) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with Stream(api, MAPS, accept=accept, resourceVersion=await revision(api)) as stream:
        await put(api, "a")
        await put(api, "b")
        (_, first), (_, second) = await stream.next(), await stream.next()

    assert first["kind"] == "Table" and first["rows"][0]["cells"][0] == "a"
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["rows"][0]["cells"][0] == "b" and not second["columnDefinitions"]


async def test_server_that_stops_ends_its_watches(api: Api) -> None:
    async with Stream(api, MAPS, resourceVersion=await revision(api)) as stream:
        stopping = asyncio.create_task(api.server.stop())
        assert await stream.ended()
        await stopping


async def test_client_that_leaves_frees_its_watcher(api: Api) -> None:
    ring = api.server.context.store.ring
    before = ring.watcher_count
    async with Stream(api, MAPS, resourceVersion=await revision(api)) as stream:
        assert ring.watcher_count == before + 1
        stream._response.close()
    async with asyncio.timeout(60):
        while ring.watcher_count != before:
            await asyncio.sleep(0)
