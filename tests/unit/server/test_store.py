"""The store alone: order, compare-and-swap, durability, watches. Crashes: tests/integration/server."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.cluster.server.store import events
from gangline.cluster.server.store.events import ExpiredError
from gangline.cluster.server.store.store import ConflictError, Store, StoreError, StoreInUseError


def thing(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def key(name: str) -> tuple[str, str, str]:
    return ("/things", "ns", name)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = Store(tmp_path / "store.sqlite")
    yield made
    await made.close()


async def test_write_is_visible_once_acknowledged_and_carries_its_revision(store: Store) -> None:
    future = store.put(key("a"), thing("a", x=1), None)

    assert store.get(*key("a")) is None
    assert store.latest(*key("a")) is not None
    entry = await future
    assert store.get(*key("a")) is entry
    assert entry.obj["metadata"]["resourceVersion"] == str(entry.revision) == str(store.revision)


async def test_writes_of_one_object_follow_one_another_without_waiting_for_the_disk(store: Store) -> None:
    futures = [store.put(key("a"), thing("a", n=0), None)]
    for n in range(1, 50):
        futures.append(store.put(key("a"), thing("a", n=n), store.latest(*key("a"))))

    revisions = [entry.revision for entry in await asyncio.gather(*futures)]

    assert revisions == sorted(set(revisions))
    assert store.entries("/things")[0].obj["n"] == 49


async def test_put_refuses_a_state_that_is_not_the_newest(store: Store) -> None:
    first = await store.put(key("a"), thing("a"), None)
    await store.put(key("a"), thing("a", x=1), first)

    with pytest.raises(ConflictError):
        store.put(key("a"), thing("a", x=2), first)
    with pytest.raises(ConflictError):
        store.put(key("a"), thing("a"), None)
    with pytest.raises(ConflictError):
        store.remove(key("a"), thing("a"), first)


async def test_everything_is_there_after_reopening_and_revisions_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    kept = await store.put(key("kept"), thing("kept", x=[1, {"y": None}]), None)
    gone = await store.put(key("gone"), thing("gone"), None)
    last = await store.remove(key("gone"), thing("gone"), gone)
    await store.close()

    store = Store(tmp_path / "s")
    try:
        assert [entry.obj for entry in store.entries("/things")] == [kept.obj]
        assert store.revision > last.revision
        assert (await store.put(key("new"), thing("new"), None)).revision > last.revision
    finally:
        await store.close()


async def test_a_state_that_was_put_back_is_no_past_that_watchers_know(tmp_path: Path) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    store = Store(path)
    await store.put(key("a"), thing("a"), None)
    await store.close()
    shutil.copy(path, copy)
    store = Store(path)
    seen = (await store.put(key("b"), thing("b"), None)).revision
    await store.close()
    for file in tmp_path.glob("s*"):
        file.unlink()
    shutil.copy(copy, path)

    store = Store(path)
    try:
        for number in range(3):  # the new revisions would reach the ones that the watcher has seen
            await store.put(key(f"c{number}"), thing("c"), None)
        with pytest.raises(ExpiredError):
            store.ring.watch("/things", None, None, seen)
    finally:
        await store.close()


async def test_second_store_on_the_same_file_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreInUseError, match="in use by another process"):
        Store(tmp_path / "store.sqlite")


async def test_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"something else entirely" * 100)

    with pytest.raises(StoreError, match="not a store"):
        Store(tmp_path / "s")


async def test_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    await store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        connection.execute("UPDATE meta SET value='99' WHERE key='format'")
    connection.close()

    with pytest.raises(StoreError, match="format 99"):
        Store(tmp_path / "s")


async def test_store_file_is_private(store: Store, tmp_path: Path) -> None:
    assert (tmp_path / "store.sqlite").stat().st_mode & 0o077 == 0


async def test_entries_come_ordered_by_namespace_and_name(store: Store) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        store.put(("/things", namespace, name), thing(f"{namespace}/{name}"), None)
    await store.put(("/others", "a", "o"), thing("o"), None)

    assert [e.obj["metadata"]["name"] for e in store.entries("/things")] == ["a/y", "a/z", "b/x"]
    assert [e.obj["metadata"]["name"] for e in store.entries("/things", "a")] == ["a/y", "a/z"]
    assert store.count("/things") == 3


async def test_failed_transaction_leaves_nothing_and_the_store_goes_on(store: Store) -> None:
    good = await store.put(key("a"), thing("a", x=1), None)
    store._writer._connection.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON object WHEN NEW.name='bad' "
        "BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    writes = [
        store.put(key("a"), thing("a", x=2), good),
        store.put(key("bad"), thing("bad"), None),
    ]
    writes.append(store.put(key("bad"), thing("bad", x=2), store.latest(*key("bad"))))

    outcomes = await asyncio.gather(*writes, return_exceptions=True)

    # The first may have been on its way alone; what was together with the broken row, or behind it, failed.
    assert all(isinstance(outcome, StoreError) for outcome in outcomes[1:])
    assert store.latest(*key("bad")) is None
    newest = store.latest(*key("a"))
    assert newest is not None and newest is store.get(*key("a"))
    assert (await store.put(key("a"), thing("a", x=3), newest)).obj["x"] == 3


async def test_watch_sees_every_later_change_once_and_in_order(store: Store) -> None:
    start = await store.put(key("a"), thing("a"), None)
    changed = await store.put(key("a"), thing("a", x=1), start)
    watcher = store.ring.watch("/things", "ns", None, start.revision)
    removed = await store.remove(key("a"), thing("a", x=1), changed)
    await store.put(("/things", "elsewhere", "b"), thing("b"), None)
    again = await store.put(key("a"), thing("a"), None)

    changes = await watcher.next_changes(1.0)

    assert [(c.type, c.revision) for c in changes] == [
        ("MODIFIED", changed.revision),
        ("DELETED", removed.revision),
        ("ADDED", again.revision),
    ]
    assert changes[0].old is start


async def test_watch_wakes_up_when_something_comes(store: Store) -> None:
    watcher = store.ring.watch("/things", None, None, store.revision)
    waiting = asyncio.create_task(watcher.next_changes(30.0))
    await asyncio.sleep(0)

    await store.put(key("a"), thing("a"), None)

    assert [change.name for change in await waiting] == ["a"]


async def test_watch_from_before_the_ring_is_expired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RING_CHANGES_MAX", 10)
    first = await store.put(key("a"), thing("a"), None)
    for n in range(12):
        await store.put(key("a"), thing("a", n=n), store.latest(*key("a")))

    with pytest.raises(ExpiredError):
        store.ring.watch("/things", None, None, first.revision)
    kept = await store.ring.watch("/things", None, None, store.revision - 10).next_changes(0)
    assert len(kept) == 10


async def test_ring_is_bounded_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RING_BYTES_MAX", 10_000)
    for n in range(10):
        await store.put(key("a"), thing("a", text="x" * 2000, n=n), store.latest(*key("a")))

    assert store.ring._bytes <= 10_000
    assert store.ring.knows(store.revision) and not store.ring.knows(store.revision - 6)


async def test_watcher_that_does_not_keep_up_is_closed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WATCHER_CHANGES_MAX", 3)
    watcher = store.ring.watch("/things", None, None, store.revision)
    for n in range(5):
        await store.put(key(f"a{n}"), thing("a"), None)

    assert watcher.closed
    assert await watcher.next_changes(0) == []  # what it held is let go; it comes back from its revision
    assert watcher.revision == 0
    assert await watcher.next_changes(0) == []


async def test_states_that_are_no_more_drop_their_parsed_form(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PARSED_CHANGES_MAX", 2)
    first = await store.put(key("a"), thing("a", x=1), None)
    for n in range(4):
        await store.put(key("a"), thing("a", n=n), store.latest(*key("a")))

    assert first._obj is None
    assert first.obj["x"] == 1
