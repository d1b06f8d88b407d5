"""Objects as the server has them while a cache lags behind, or is ahead of the answer to a write."""

from __future__ import annotations

from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import PODS
from gangline.cluster.controllers.caches import Caches
from gangline.cluster.controllers.current_objects import CurrentObjects

META = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
ENDED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}


def objects() -> CurrentObjects[Pod]:
    return CurrentObjects(Caches(None), PODS, Pod)  # type: ignore[arg-type]


def pod(**meta: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": META | meta}


async def test_a_write_counts_before_the_cache_shows_it() -> None:
    pods = objects()

    pods.note(pod())

    assert [one.metadata.name for one in pods.all()] == ["p"]


async def test_what_went_with_the_write_of_its_last_finalizer_is_gone() -> None:
    pods = objects()
    pods.note(pod())

    assert pods.note(pod(**ENDED)) is None

    assert pods.all() == []


async def test_what_is_only_ending_is_there() -> None:
    pods = objects()

    pods.note(pod(**ENDED | {"deletionGracePeriodSeconds": 30}))
    pods.note(pod(**ENDED, uid="held", name="held", finalizers=["a/b"]))

    assert sorted(one.metadata.name for one in pods.all()) == ["held", "p"]
