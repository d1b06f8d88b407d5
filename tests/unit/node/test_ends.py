"""Records of how pods ended: kept on disk, told until the API has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient

from gangline.api.core import ObjectMeta, Pod, PodStatus
from gangline.api.resources import PODS
from gangline.cluster.node.ends import PodEnd, PodEnds, write_status
from gangline.cluster.node.leftovers import choose_ends
from gangline.kube.errors import Conflict, Unavailable

STATUS = {"phase": "Succeeded", "containerStatuses": []}
END = PodEnd("u1", "default", "one", 10.0, STATUS)


async def api(*failures: Exception | None, live_uid: str = "u1") -> FakeClient:
    """A server with the pod, or with another one of its name."""
    client = FakeClient()
    if live_uid:
        await client.create(PODS, {"metadata": {"name": "one", "uid": live_uid}, "status": {}})
        client.actions.clear()
    client.failures = list(failures)
    return client


class Silent:
    def warning(self, *_: Any, **__: Any) -> None: ...


def pod(phase: str = "Running", **meta: Any) -> Pod:
    metadata = ObjectMeta(name="one", namespace="default", uid="u1", **meta)
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


def ends(folder: Path, client: FakeClient | None = None) -> PodEnds:
    return PodEnds(folder / "ends", client or FakeClient(), Silent())


def test_the_next_agent_finds_what_was_kept(tmp_path):
    assert ends(tmp_path).keep(END)

    found = ends(tmp_path)

    assert "u1" in found
    assert found.find("u1") == END
    assert "u2" not in found


def test_a_record_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "ends").mkdir()
    (tmp_path / "ends" / "u1.json").write_text("{half")

    assert "u1" not in ends(tmp_path)


def test_the_first_end_of_a_pod_stays(tmp_path):
    kept = ends(tmp_path)
    kept.keep(END)
    kept.keep(PodEnd("u1", "default", "one", 11.0, {"phase": "Failed"}))

    assert kept.find("u1") == END


def test_a_disk_that_refuses_is_told_apart(tmp_path):
    kept = ends(tmp_path)
    (tmp_path / "ends").rmdir()

    assert not kept.keep(END)
    assert "u1" not in kept


GOING = {"deletion_timestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        (pod("Running"), ["patch"]),
        (pod("Succeeded"), []),
        (pod("Succeeded", **GOING, deletion_grace_period_seconds=30), ["delete"]),
        (pod("Running", **GOING, deletion_grace_period_seconds=30), ["patch", "delete"]),
        # Confirmed already; a finalizer of somebody else keeps the object.
        (pod("Failed", **GOING, deletion_grace_period_seconds=0), []),
    ],
    ids=["running", "told", "deleted", "deleted while it ended", "confirmed"],
)
async def test_what_the_api_does_not_know_is_told(tmp_path, before, asked):
    client = await api()
    kept = ends(tmp_path, client)
    kept.keep(END)

    await kept.tell(before)

    assert [verb for verb, _, _ in client.actions] == asked
    told = dict(zip(asked, client.options[-len(asked) :], strict=False))
    if "patch" in asked:
        assert told["patch"]["body"] == {"metadata": {"uid": "u1"}, "status": STATUS}
        assert told["patch"]["subresource"] == "status"
    if "delete" in asked:
        assert told["delete"] == {"grace_period_s": 0, "uid": "u1"}


async def test_a_server_that_is_away_is_to_be_told_again(tmp_path):
    client = await api(Unavailable(0, "", "away"))
    kept = ends(tmp_path, client)
    kept.keep(END)

    with pytest.raises(Unavailable):
        await kept.tell(pod())
    await kept.tell(pod())

    assert len(client.actions) == 2


@pytest.mark.parametrize("live_uid", ["", "another"])
async def test_a_pod_that_is_gone_or_was_replaced_needs_not_be_told(live_uid):
    assert not await write_status(await api(live_uid=live_uid), pod(), STATUS)


async def test_a_pod_that_is_gone_after_a_conflict_needs_not_be_told():
    busy = Conflict(409, "Conflict", "uid")

    assert not await write_status(await api(busy, live_uid=""), pod(), STATUS)


async def test_a_conflict_about_the_same_pod_is_no_end_of_it():
    with pytest.raises(Conflict):
        await write_status(await api(Conflict(409, "Conflict", "busy")), pod(), STATUS)


def test_records_of_pods_in_the_api_stay_and_old_ones_of_others_go(tmp_path):
    import os

    kept = ends(tmp_path)
    for uid in ("living", "fresh", "old"):
        kept.keep(PodEnd(uid, "default", uid, 0.0, STATUS))
    for uid in ("living", "old"):
        os.utime(tmp_path / "ends" / f"{uid}.json", (0, 0))

    assert choose_ends(tmp_path / "ends", {"living"}) == ["old"]
