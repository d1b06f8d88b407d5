"""The cache against a stand-in server: it holds what the server holds, whatever breaks on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.core import AnyObject, ObjectMeta, Pod, Wire
from gangline.api.resources import PODS
from gangline.kube.backoff import Backoff
from gangline.kube.cache import Cache
from gangline.kube.errors import Gone, TooManyRequests, Unavailable

AT_ONCE = Backoff(delay_min_s=0.0)


class Mirror:
    """Replays callbacks: what a listener knows of the objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.lost: list[str] = []
        self.changed = asyncio.Condition()
        self._notified: set[asyncio.Task[None]] = set()

    def __call__(self, old: Any, new: Any) -> None:
        assert old or new
        key = (new or old).metadata.key
        assert self.objects.get(key) is old, "the old object is the one that was new before"
        if new is None:
            del self.objects[key]
            self.lost.append(key)
        else:
            assert old is None or old.metadata.uid == new.metadata.uid
            self.objects[key] = new
        task = asyncio.get_running_loop().create_task(self._notify())
        self._notified.add(task)
        task.add_done_callback(self._notified.discard)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(condition)


@asynccontextmanager
async def running(cache: Cache[Any]) -> Any:
    task = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(10)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def versions(objects: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        key: (value.metadata.uid, value.metadata.resource_version) for key, value in sorted(objects.items())
    }


def server_versions(server: Any) -> dict[str, tuple[str, str]]:
    return {
        key: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
        for key, obj in sorted(server.objects.items())
    }


names = st.sampled_from(["a", "b", "c"])
operations = st.one_of(
    st.tuples(st.just("put"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.sampled_from(["end", "cut", "gone", "bookmark", "settle", "settle", "settle"]), st.none()),
)


async def perform(server: Any, operation: tuple[str, str | None], settle: Callable[[], Any]) -> None:
    what, name = operation
    actions: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "put": lambda: server.put(name),
        "remove": lambda: server.remove(name),
        "end": lambda: server.end_watches("end"),
        "cut": lambda: server.end_watches("cut"),
        "gone": server.compact,
        "bookmark": server.bookmark,
        "settle": settle,
    }
    await actions[what]()


async def scenario(server: Any, sequence: list[tuple[str, str | None]], page_size: int) -> None:
    server.page_size_max = page_size
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE, keep_raw=True)
        cache.add_index("uid", lambda obj: [obj.metadata.uid])
        mirror = Mirror()
        cache.on_change(mirror)

        async def settle() -> None:
            want = server_versions(server)
            await mirror.wait_for(lambda: versions(mirror.objects) == want)

        async with running(cache):
            for operation in sequence:
                await perform(server, operation, settle)
            await settle()

            held = {obj.metadata.key: obj for obj in cache.items()}
            assert versions(held) == server_versions(server)
            for key, obj in held.items():
                assert cache.get(key) is obj
                assert cache.by_index("uid", obj.metadata.uid) == [obj]
                raw = cache.raw(key)
                assert raw and raw["metadata"]["resourceVersion"] == obj.metadata.resource_version


@settings(max_examples=100, deadline=None)
@given(
    sequence=st.lists(operations, min_size=10, max_size=40),
    in_stream=st.booleans(),
    page_size=st.sampled_from([1, 3, 100]),
)
def test_cache_holds_what_the_server_holds_after_any_history(
    stand_in: Any, sequence: list[tuple[str, str | None]], in_stream: bool, page_size: int
) -> None:
    async def run() -> None:
        async with stand_in() as server:
            server.is_gone_in_stream = in_stream
            await scenario(server, sequence, page_size)

    asyncio.run(run())


async def test_a_relist_tells_the_differences_and_nothing_else(server: Any) -> None:
    for name in ("kept", "changed", "lost"):
        await server.put(name)
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        calls: list[tuple[str, str]] = []
        async with running(cache):
            await server.wait_for(lambda: server.watches == 1)
            kept = cache.get("default/kept")
            mirror = Mirror()
            mirror.objects = {obj.metadata.key: obj for obj in cache.items()}
            cache.on_change(mirror)
            cache.on_change(
                lambda old, new: calls.append((old.metadata.name if old else "", "new" if new else ""))
            )
            server._log.clear()  # changes that the watch does not see
            server.objects.pop("default/lost")
            server.objects["default/changed"]["metadata"]["resourceVersion"] = "150"
            server.version = 150
            await server.compact()
            await mirror.wait_for(lambda: cache.statistics().lists == 2 and len(calls) == 2)

            assert cache.get("default/kept") is kept
    assert sorted(calls) == [("changed", "new"), ("lost", "")]


async def test_an_object_replaced_by_another_of_its_name_is_lost_first(server: Any) -> None:
    await server.put("a")
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        mirror = Mirror()
        cache.on_change(mirror)
        async with running(cache):
            server.objects.pop("default/a")  # its deletion is not seen
            new = await server.put("a")
            await mirror.wait_for(lambda: mirror.objects["default/a"].metadata.uid == new["metadata"]["uid"])

    assert mirror.lost == ["default/a"]


async def test_a_watch_that_ends_is_continued_without_a_list(server: Any) -> None:
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        mirror = Mirror()
        cache.on_change(mirror)
        async with running(cache):
            for number in range(3):
                await server.put(f"p{number}")
                await mirror.wait_for(lambda number=number: f"default/p{number}" in mirror.objects)
                await server.end_watches("end")

            await server.wait_for(lambda: server.watches_served == 4)

    assert cache.statistics().lists == 1
    watched_from = [query["resourceVersion"] for _, _, query in server.requests if "watch" in query]
    assert watched_from == ["100", "101", "102", "103"]


async def test_events_that_come_twice_or_late_change_nothing(server: Any) -> None:
    old = await server.put("a")
    new = await server.put("a")
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        async with running(cache):
            mirror = Mirror()
            mirror.objects = {obj.metadata.key: obj for obj in cache.items()}
            cache.on_change(mirror)
            await server.send_line("MODIFIED", old)
            await server.send_line("MODIFIED", new)
            await server.send_line("DELETED", old)
            await server.put("b")
            await mirror.wait_for(lambda: "default/b" in mirror.objects)
            held = cache.get("default/a")

    assert held and held.metadata.resource_version == new["metadata"]["resourceVersion"]
    assert mirror.objects["default/a"] is held


async def test_a_bookmark_moves_the_version_on(server: Any) -> None:
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        async with running(cache):
            await server.bookmark()
            await server.put("a")
            await server.wait_for(lambda: server.watches == 1)
            await server.bookmark()
            mirror = Mirror()
            cache.on_change(mirror)
            await server.put("b")
            await mirror.wait_for(lambda: "default/b" in mirror.objects)
            statistics = cache.statistics()

    assert statistics.resource_version == "104"
    assert statistics.events == 2


@pytest.mark.parametrize(("code", "want_lists"), [(500, 2), (504, 2), (403, 2), (503, 1), (429, 1)])
async def test_a_refused_watch_is_tried_again_or_the_list_is(
    server: Any, make_status: Any, code: int, want_lists: int
) -> None:
    serve_watch = server._watch

    async def refuse_once(_request: Any) -> Any:
        server._watch = serve_watch
        return web.json_response(make_status(code, ""), status=code)

    server._watch = refuse_once
    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE)
        async with running(cache):
            await server.wait_for(lambda: server.watches == 1)

    assert cache.statistics().lists == want_lists
    assert cache.statistics().failures == 1


async def test_a_storm_of_410_does_not_spin(server: Any) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        await asyncio.sleep(0)
        if len(pauses) == 12:
            enough.set()
            await asyncio.Event().wait()

    server._oldest = 10**6  # every version is too old
    async with (
        server.client() as client,
        running(Cache(client, PODS, AnyObject, backoff=Backoff(sleep=sleep))),
    ):
        async with asyncio.timeout(60):
            await enough.wait()

    assert server.watches_served == 12
    assert pauses[0] >= 0.05
    assert all(pause >= 15 for pause in pauses[10:])


async def test_a_server_that_ends_every_watch_at_once_does_not_make_it_spin(server: Any) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        await asyncio.sleep(0)
        if len(pauses) == 8:
            enough.set()
            await asyncio.Event().wait()

    async def end_at_once(_request: Any) -> Any:
        return web.Response()

    server._watch = end_at_once
    async with (
        server.client() as client,
        running(Cache(client, PODS, AnyObject, backoff=Backoff(sleep=sleep))),
    ):
        async with asyncio.timeout(60):
            await enough.wait()

    assert pauses[-1] >= 2.5


async def test_an_object_that_does_not_fit_is_left_out_alone(server: Any) -> None:
    class Strict(Wire, frozen=True, kw_only=True):
        """Labels must be numbers here."""

        class Meta(Wire, frozen=True, kw_only=True):
            name: str
            namespace: str
            uid: str
            resource_version: str
            labels: dict[str, int] = {}

            @property
            def key(self) -> str:
                return f"{self.namespace}/{self.name}"

        metadata: Meta

    await server.put("bad", labels={"n": "x"})
    await server.put("good")
    async with server.client() as client:
        cache = Cache(client, PODS, Strict, backoff=AT_ONCE)
        async with running(cache):
            assert [obj.metadata.name for obj in cache.items()] == ["good"]
            assert cache.statistics().undecodable == 1


async def test_dictionaries_can_be_held_too(server: Any) -> None:
    await server.put("a")
    async with server.client() as client:
        cache = Cache(client, PODS, dict[str, Any], backoff=AT_ONCE)
        async with running(cache):
            held = cache.get("default/a")

    assert held and held["metadata"]["name"] == "a"


async def test_a_failing_listener_does_not_stop_the_others(server: Any) -> None:
    def fail(_old: Any, _new: Any) -> None:
        raise RuntimeError("listener")

    async with server.client() as client:
        cache = Cache(client, PODS, Pod, backoff=AT_ONCE)
        mirror = Mirror()
        cache.on_change(fail)
        cache.on_change(mirror)
        async with running(cache):
            await server.put("a")
            await mirror.wait_for(lambda: "default/a" in mirror.objects)


async def test_waiting_for_a_cache_that_is_refused_says_why(server: Any, make_status: Any) -> None:
    refused = asyncio.Event()

    async def sleep(_delay_s: float) -> None:
        refused.set()
        await asyncio.Event().wait()

    server.answers.append(lambda: web.json_response(make_status(403, "Forbidden", "not you"), status=403))
    async with server.client() as client:
        cache = Cache(client, PODS, Pod, backoff=Backoff(sleep=sleep))
        task = asyncio.create_task(cache.run())
        await refused.wait()
        with pytest.raises(Unavailable, match=r"pods.*not you"):
            await cache.wait_synced(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_cache_runs_once(server: Any) -> None:
    async with server.client() as client:
        cache = Cache(client, PODS, Pod)
        async with running(cache):
            with pytest.raises(RuntimeError, match="running already"):
                await cache.run()


def test_pauses_double_up_to_their_limit_with_jitter() -> None:
    pace = Backoff(delay_min_s=1.0, reconnect_delay_max_s=4.0, relist_delay_max_s=30.0)
    gone, lost = Gone(410, "Expired", ""), Unavailable(0, "", "")

    for failures, want_s in [(1, 1), (2, 2), (3, 4), (6, 30), (1000, 30)]:
        assert want_s / 2 <= pace.delay_s(failures, gone) <= want_s
    assert 2 <= pace.delay_s(1000, lost) <= 4
    assert pace.delay_s(1, TooManyRequests(429, "", "", retry_after_s=9)) == 9


async def test_what_is_to_be_kept_is_held_and_all_of_it_told(server: Any) -> None:
    """The first list is told page by page."""
    server.page_size_max = 2
    for number in range(5):
        await server.put(f"p{number}")
    told: list[tuple[Any, Any]] = []

    def keep(obj: AnyObject) -> AnyObject:
        return AnyObject(metadata=ObjectMeta(name=obj.metadata.name, namespace=obj.metadata.namespace))

    async with server.client() as client:
        cache = Cache(client, PODS, AnyObject, backoff=AT_ONCE, keep=keep)
        seen = asyncio.Event()
        cache.on_change(lambda old, new: told.append((old, new)))
        cache.on_change(lambda *_: seen.set())
        async with running(cache):
            assert [new.metadata.name for _, new in told] == [f"p{number}" for number in range(5)]
            assert all(new.metadata.uid for _, new in told)
            assert {obj.metadata.uid for obj in cache.items()} == {""}
            seen.clear()
            await server.put("p0")
            await asyncio.wait_for(seen.wait(), 10)

            old, new = told[-1]
            assert (old.metadata.uid, old.metadata.name) == ("", "p0")
            assert new.metadata.uid
            seen.clear()
            await server.remove("p0")
            await asyncio.wait_for(seen.wait(), 10)
            assert told[-1][1] is None
            assert len(cache.items()) == 4
