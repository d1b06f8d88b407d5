"""Records of how pods ended: kept on disk, told until the API has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import ObjectMeta, Pod, PodStatus
from gangline.cluster.node.ends import PodEnd, PodEnds, write_status
from gangline.cluster.node.leftovers import choose_ends
from gangline.kube.errors import Conflict, NotFound, Unavailable

STATUS = {"phase": "Succeeded", "containerStatuses": []}
END = PodEnd("u1", "default", "one", 10.0, STATUS)


class Api:
    """Stands in for a client; raises what it is told to, one for each request."""

    def __init__(self, *failures: Exception | None, live_uid: str = "u1") -> None:
        self.requests: list[tuple[Any, ...]] = []
        self._failures = list(failures)
        self._live_uid = live_uid

    def _take(self, *request: Any) -> None:
        self.requests.append(request)
        if self._failures and (failure := self._failures.pop(0)):
            raise failure

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, **options: Any) -> None:
        self._take("patch", name, patch["metadata"]["uid"], patch["status"])

    async def delete(self, resource: Any, name: str, namespace: str, **options: Any) -> None:
        self._take("delete", name, options["uid"], options["grace_period_s"])

    async def get(self, resource: Any, name: str, namespace: str) -> dict[str, Any]:
        if not self._live_uid:
            raise NotFound(404, "NotFound", "gone")
        return {"metadata": {"uid": self._live_uid}}


class Silent:
    def warning(self, *_: Any, **__: Any) -> None: ...


def pod(phase: str = "Running", **meta: Any) -> Pod:
    metadata = ObjectMeta(name="one", namespace="default", uid="u1", **meta)
    return Pod(metadata=metadata, status=PodStatus(phase=phase))


def ends(folder: Path, api: Api) -> PodEnds:
    return PodEnds(folder / "ends", api, Silent())  # type: ignore[arg-type]


def test_the_next_agent_finds_what_was_kept(tmp_path):
    assert ends(tmp_path, Api()).keep(END)

    found = ends(tmp_path, Api())

    assert "u1" in found
    assert found.find("u1") == END
    assert "u2" not in found


def test_a_record_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "ends").mkdir()
    (tmp_path / "ends" / "u1.json").write_text("{half")

    assert "u1" not in ends(tmp_path, Api())


def test_the_first_end_of_a_pod_stays(tmp_path):
    kept = ends(tmp_path, Api())
    kept.keep(END)
    kept.keep(PodEnd("u1", "default", "one", 11.0, {"phase": "Failed"}))

    assert kept.find("u1") == END


def test_a_disk_that_refuses_is_told_apart(tmp_path):
    kept = ends(tmp_path, Api())
    (tmp_path / "ends").rmdir()

    assert not kept.keep(END)
    assert "u1" not in kept


@pytest.mark.parametrize(
    ("before", "requests"),
    [
        (pod("Running"), [("patch", "one", "u1", STATUS)]),
        (pod("Succeeded"), []),
        (
            pod("Succeeded", deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=30),
            [("delete", "one", "u1", 0)],
        ),
        (
            pod("Running", deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=30),
            [("patch", "one", "u1", STATUS), ("delete", "one", "u1", 0)],
        ),
        # Confirmed already; a finalizer of somebody else keeps the object.
        (pod("Failed", deletion_timestamp="2026-01-01T00:00:00Z", deletion_grace_period_seconds=0), []),
    ],
    ids=["running", "told", "deleted", "deleted while it ended", "confirmed"],
)
def test_what_the_api_does_not_know_is_told(tmp_path, before, requests):
    api = Api()
    kept = ends(tmp_path, api)
    kept.keep(END)

    asyncio.run(kept.tell(before))

    assert api.requests == requests


def test_a_server_that_is_away_is_to_be_told_again(tmp_path):
    api = Api(Unavailable(0, "", "away"))
    kept = ends(tmp_path, api)
    kept.keep(END)

    with pytest.raises(Unavailable):
        asyncio.run(kept.tell(pod()))
    asyncio.run(kept.tell(pod()))

    assert len(api.requests) == 2


@pytest.mark.parametrize(
    ("failure", "live_uid"),
    [
        (NotFound(404, "NotFound", "gone"), ""),
        (Conflict(409, "Conflict", "uid"), "another"),
        (Conflict(409, "Conflict", "uid"), ""),
    ],
)
def test_a_pod_that_is_gone_or_was_replaced_needs_not_be_told(failure, live_uid):
    assert not asyncio.run(write_status(Api(failure, live_uid=live_uid), pod(), STATUS))  # type: ignore[arg-type]


def test_a_conflict_about_the_same_pod_is_no_end_of_it():
    with pytest.raises(Conflict):
        asyncio.run(write_status(Api(Conflict(409, "Conflict", "busy")), pod(), STATUS))  # type: ignore[arg-type]


def test_records_of_pods_in_the_api_stay_and_old_ones_of_others_go(tmp_path):
    import os

    kept = ends(tmp_path, Api())
    for uid in ("living", "fresh", "old"):
        kept.keep(PodEnd(uid, "default", uid, 0.0, STATUS))
    for uid in ("living", "old"):
        os.utime(tmp_path / "ends" / f"{uid}.json", (0, 0))

    assert choose_ends(tmp_path / "ends", {"living"}) == ["old"]
