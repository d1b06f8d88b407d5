"""A watch from any retained revision sees every later change exactly once, in order, whatever is written."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.cluster.server.store.store import Change, Store

COLLECTION = "/things"

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("watch"), st.integers(0, 30)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=40,
)


async def run(plan: list[tuple[str, int]], folder: Path) -> None:
    store = Store(folder / "store.sqlite")
    pending: list[asyncio.Future[object]] = []
    watchers = []
    written: list[int] = []
    try:
        for action, number in plan:
            key = (COLLECTION, "ns", f"o{number}")
            before = store.latest(*key)
            if action == "write":
                obj = {"metadata": {"name": key[2]}, "n": len(pending)}
                pending.append(asyncio.ensure_future(store.put(key, obj, before)))
            elif action == "remove" and before is not None:
                last = {**before.obj, "metadata": dict(before.obj["metadata"])}
                pending.append(asyncio.ensure_future(store.remove(key, last, before)))
            elif action == "watch":
                since = max(0, store.revision - number)
                watchers.append((since, store.ring.watch(COLLECTION, None, None, since)))
            elif action == "settle":
                await asyncio.gather(*pending)
        written = [entry.revision for entry in await asyncio.gather(*pending)]  # type: ignore[attr-defined]
        for since, watcher in watchers:
            changes: list[Change] = await watcher.next_changes(0)
            assert [change.revision for change in changes] == [r for r in written if r > since]
            state: dict[str, int] = {}
            for change in changes:
                assert (change.type == "ADDED") == (change.old is None)
                if change.type == "DELETED":
                    state.pop(change.name, None)
                else:
                    state[change.name] = change.revision
            now = {entry.obj["metadata"]["name"]: entry.revision for entry in store.entries(COLLECTION)}
            assert {name: revision for name, revision in now.items() if revision > since} == state
    finally:
        await store.close()


@settings(max_examples=40, deadline=None)
@given(steps)
def test_watch_is_complete(plan: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(plan, Path(folder)))
