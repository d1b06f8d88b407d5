"""What the server takes on follows from the memory that it may have."""

import pytest

from gangline.api.budgets import BODY
from gangline.cluster.server.http.auth import ADMIN
from gangline.cluster.server.http.load import Load
from gangline.cluster.server.memory import MemoryShares, free_bytes
from gangline.cluster.server.status_errors import StatusError
from gangline.cluster.server.store.store import Store, StoreFullError

MIB = 1 << 20
KEY = ("/configmaps", "default", "a")


@pytest.mark.parametrize("free", [0, 100 * MIB, 400 * MIB, 16 << 30, 1 << 40])
def test_shares_fit_into_what_is_free_and_take_one_object_at_least(free: int) -> None:
    shares = MemoryShares.of(free)

    needed = 6 * shares.store_bytes_max + 8 * shares.body_bytes_max + 2 * shares.answer_bytes_max
    assert needed <= free or free < 200 * MIB
    assert min(shares.store_bytes_max, shares.body_bytes_max, shares.answer_bytes_max) > BODY.bytes_max


def test_there_is_memory_here() -> None:
    assert free_bytes() > 0


def test_bodies_are_counted_until_their_requests_are_answered() -> None:
    load = Load(MemoryShares(store_bytes_max=100 * MIB, body_bytes_max=8 * MIB, answer_bytes_max=8 * MIB))

    with load.body(ADMIN, 5 * MIB, is_local=True):
        with pytest.raises(StatusError) as refused, load.body(ADMIN, 5 * MIB, is_local=True):
            pass
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "1")
    with load.body(ADMIN, 5 * MIB, is_local=True):
        pass


def made(size: int) -> dict[str, object]:
    return {"metadata": {"name": "a"}, "data": {"k": "x" * size}}


async def test_a_full_store_refuses_what_is_new_and_takes_small_changes_and_deletions(tmp_path) -> None:
    store = Store(tmp_path / "store.sqlite", bytes_max=10_000)
    entry = await store.put(KEY, made(9_000), None)

    with pytest.raises(StoreFullError, match="delete objects"):
        store.put(("/configmaps", "default", "b"), made(2_000), None)
    entry = await store.put(KEY, made(11_000), entry)
    with pytest.raises(StoreFullError):
        store.put(KEY, made(14_000), entry)
    await store.remove(KEY, made(1), entry)
    await store.put(("/configmaps", "default", "b"), made(9_000), None)
    await store.close()

    store = Store(tmp_path / "store.sqlite", bytes_max=10_000)
    with pytest.raises(StoreFullError):
        store.put(("/configmaps", "default", "c"), made(9_000), None)
    await store.close()
