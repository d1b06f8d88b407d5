"""A damaged store: the error names the way out, and what can be read is read."""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.cli.store import as_manifest, is_for_a_new_cluster
from gangline.cluster.server.store.salvage import salvage
from gangline.cluster.server.store.store import Store, StoreError

COUNT = 300
LONG = 40
"""Every so many objects one is longer than a page, and lies in a chain of pages."""


def name_of(number: int) -> str:
    return f"m{number:03}"


def config_map(number: int) -> dict[str, object]:
    text = "v" * (20_000 if number % LONG == 0 else 200)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name_of(number)},
        "data": {"k": text},
    }


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with many objects, closed in order."""
    path = tmp_path / "team" / "store.sqlite"
    path.parent.mkdir()
    store = Store(path)
    await asyncio.gather(
        *(store.put(("/configmaps", "default", name_of(n)), config_map(n), None) for n in range(COUNT))
    )
    await store.close()
    return path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def no_header(path: Path) -> None:
    overwrite(path, 0, bytes(4096))


def torn(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096 + 100)


def garbage_inside(path: Path) -> None:
    overwrite(path, path.stat().st_size // 2 // 4096 * 4096, b"\xa5" * 4096)


def garbage_in_a_value(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE object SET value=x'7b00' WHERE name='m007'")
    connection.close()


def another_letter_in_a_value(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE object SET value=CAST(replace(value, 'vvv', 'wvv') AS BLOB) WHERE name='m007'"
        )
    connection.close()


def a_row_that_is_gone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM object WHERE name='m007'")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "at_least"),
    [
        (another_letter_in_a_value, (COUNT - 1) / COUNT),
        (no_header, 0.95),
        (torn, 0.3),
        (garbage_inside, 0.9),
        (garbage_in_a_value, (COUNT - 1) / COUNT),
    ],
)
async def test_a_damaged_store_names_the_way_out_and_is_read_as_far_as_it_goes(
    path: Path, damage: Callable[[Path], None], at_least: float
) -> None:
    damage(path)

    with pytest.raises(StoreError) as caught:
        await Store(path).close()
    found = salvage(path)

    assert "gangline store export --cluster team > objects.yaml" in caught.value.hint
    assert len(found.objects) >= at_least * COUNT
    for number in range(COUNT):
        key = ("/configmaps", "default", name_of(number))
        if key in found.objects:
            assert found.objects[key]["data"] == config_map(number)["data"]
    assert found.problem or found.unreadable == [("/configmaps", "default", "m007")]


async def test_a_row_that_is_missing_is_noticed(path: Path) -> None:
    a_row_that_is_gone(path)

    with pytest.raises(StoreError, match=f"it has {COUNT - 1} rows, and {COUNT} were written"):
        await Store(path).close()
    assert salvage(path).problem == "rows are missing"


@pytest.mark.parametrize("text", ["0 0 0 00000000", "300", "x", ""])
async def test_a_damaged_account_of_what_is_there_is_noticed(path: Path, text: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value=? WHERE key='contents'", (text,))
    connection.close()

    with pytest.raises(StoreError, match="does not say what it holds"):
        await Store(path).close()
    assert salvage(path).problem
    assert len(salvage(path).objects) == COUNT


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_bytes_are_damaged_the_store_is_refused_or_whole(path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    length = random_.choice([1, 8, 64, 4096])
    overwrite(path, random_.randrange(path.stat().st_size - length), random_.randbytes(length))

    try:
        store = Store(path)
    except StoreError as error:
        assert "gangline store export" in error.hint
    else:
        objects = {entry.obj["metadata"]["name"]: entry.obj["data"] for entry in store.entries("/configmaps")}
        await store.close()
        assert objects == {name_of(n): config_map(n)["data"] for n in range(COUNT)}
    for (_, _, name), obj in salvage(path).objects.items():
        assert obj["data"] == config_map(int(name[1:]))["data"]


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """A store as a killed server leaves it: what was written last lies in the log alone."""
    path = tmp_path / "running" / "store.sqlite"
    path.parent.mkdir()
    store = Store(path)
    for number in range(20):
        await store.put(("/configmaps", "default", name_of(number)), config_map(number), None)
    copy = tmp_path / "team" / "store.sqlite"
    shutil.copytree(path.parent, copy.parent)
    await store.close()
    return copy


async def test_what_a_killed_server_leaves_is_whole(killed: Path) -> None:
    store = Store(killed)

    assert store.count("/configmaps") == 20
    await store.close()


@pytest.mark.parametrize("at", [0, 16, 0.3, 0.5, 0.7], ids=["magic", "salts", "early", "middle", "late"])
async def test_a_log_that_breaks_off_is_noticed_and_read_behind_the_break(killed: Path, at: float) -> None:
    log = killed.with_name("store.sqlite-wal")
    overwrite(log, int(log.stat().st_size * at) if at < 1 else int(at), b"\xa5" * 8)

    for _ in range(2):  # the first try leaves the evidence where it is
        with pytest.raises(StoreError, match="its log breaks off before [0-9]+ acknowledged") as caught:
            await Store(killed).close()
    assert "gangline store export --cluster team" in caught.value.hint
    found = salvage(killed)
    assert "its log breaks off" in found.problem
    assert len(found.objects) >= 19


async def test_a_torn_last_transaction_is_passed_over(killed: Path) -> None:
    log = killed.with_name("store.sqlite-wal")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 2000)

    store = Store(killed)

    assert store.count("/configmaps") == 19
    await store.close()


async def test_a_store_without_sums_gets_them(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE object DROP COLUMN sum")
        connection.execute("DELETE FROM meta")
        connection.execute(f"INSERT INTO meta VALUES ('format', '1'), ('revision', '{COUNT + 7}')")
    connection.close()
    assert len(salvage(path).objects) == COUNT

    for _ in range(2):
        store = Store(path)
        assert store.count("/configmaps") == COUNT
        assert store.revision > COUNT + 7
        await store.close()
    another_letter_in_a_value(path)
    with pytest.raises(StoreError, match="m007: the row does not fit its sum"):
        await Store(path).close()


async def test_a_damaged_store_without_sums_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE object DROP COLUMN sum")
        connection.execute("DELETE FROM meta")
        connection.execute("INSERT INTO meta VALUES ('format', '1'), ('revision', '300')")
    connection.close()
    garbage_in_a_value(path)

    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            await Store(path).close()
        assert "gangline store export --cluster team" in caught.value.hint


async def test_a_sound_store_is_read_whole(path: Path) -> None:
    found = salvage(path)

    assert (len(found.objects), found.unreadable, found.problem) == (COUNT, [], "")


async def test_what_is_in_the_log_alone_is_found_page_by_page_too(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    for number in range(20):
        await store.put(("/configmaps", "default", name_of(number)), config_map(number), None)
    copy = tmp_path / "copy.sqlite"  # as a crash leaves it: nothing has been copied back
    copy.write_bytes(bytes(path.stat().st_size))
    copy.with_name("copy.sqlite-wal").write_bytes(path.with_name("store.sqlite-wal").read_bytes())
    await store.close()
    overwrite(copy, 0, bytes(100))

    assert len(salvage(copy).objects) == 20


async def test_garbage_behind_the_log_is_passed_over(path: Path) -> None:
    path.with_name("store.sqlite-wal").write_bytes(b"\xa5" * 100_000)

    assert len(salvage(path).objects) == COUNT
    await Store(path).close()


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\x00", bytes(100_000), b"\xff" * 70_000])
async def test_whatever_a_file_holds_it_is_read_without_a_fault(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert salvage(path).objects == {}


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        ({"kind": "ConfigMap", "metadata": {"name": "mine"}}, True),
        ({"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}, False),
        ({"kind": "Namespace", "metadata": {"name": "default"}}, False),
        ({"kind": "Namespace", "metadata": {"name": "team"}}, True),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "node-0"}}, False),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": {}}, True),
        ({"kind": "Pod", "metadata": {"name": "p", "ownerReferences": [{}]}}, False),
        ({"kind": "Node", "metadata": {"name": "node-0"}}, False),
        ({"kind": "Job", "metadata": {"name": "j"}, "status": {}}, True),
        ({"kind": "Job", "metadata": {"name": "j"},
          "status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
        ({"kind": "MPIJob", "metadata": {"name": "j"},
          "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}, False),
        ({"kind": "CustomResourceDefinition", "metadata": {"name": "mpijobs.kubeflow.org"}}, False),
        ({"kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"}}, True),
    ],
)  # fmt: skip
def test_a_new_cluster_is_given_what_is_the_users_and_has_not_run(obj: dict, wanted: bool) -> None:
    assert is_for_a_new_cluster(obj) is wanted


def test_a_manifest_has_nothing_that_a_server_fills_in() -> None:
    obj = config_map(1) | {"status": {"x": 1}}
    obj["metadata"] = {"name": "m", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}

    assert as_manifest(obj) == config_map(1) | {"metadata": {"name": "m", "labels": {"a": "b"}}}
