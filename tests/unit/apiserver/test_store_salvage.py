"""A damaged store: the error names the way out, and what can be read is read."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.cli.store import as_manifest, is_for_a_new_cluster
from gangline.local.store import Store, StoreError
from gangline.local.store_salvage import salvage

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


@pytest.mark.parametrize(
    ("damage", "at_least"),
    [(no_header, 0.95), (torn, 0.3), (garbage_inside, 0.9), (garbage_in_a_value, (COUNT - 1) / COUNT)],
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
