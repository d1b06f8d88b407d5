"""What a PodGroup says beside its fields: how long the job may run, and the queue it is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gangline.api.core import ObjectMeta
from gangline.api.pod_group import PodGroup
from gangline.jobs.gang import Dialect, build_pod_group, dialect_of, ensure_pod_group
from gangline.jobs.mpijob_gang import gang_of_mpijob
from gangline.jobs.plan import Patch
from gangline.jobs.settings import Settings

Build = Callable[..., Any]
PLUGINS = "scheduler-plugins-scheduler"


def gang_of(scene: Build, **spec: Any) -> Any:
    one = scene(**spec)
    one.settings = Settings(gang_scheduling=PLUGINS)
    return one


def pod_group(one: Any) -> dict[str, Any]:
    dialect = dialect_of(PLUGINS)
    assert isinstance(dialect, Dialect)
    return build_pod_group(gang_of_mpijob(one.read().job), dialect, {})


LIMIT = "gangline.dev/limit-seconds"


def test_the_pod_group_says_how_long_the_job_may_run(scene: Build) -> None:
    assert "annotations" not in pod_group(gang_of(scene))["metadata"]
    assert pod_group(gang_of(scene, runPolicy={"activeDeadlineSeconds": 600}))["metadata"]["annotations"] == {
        LIMIT: "600"
    }


def test_a_limit_that_the_job_states_itself_is_passed_on_and_its_deadline_wins(scene: Build) -> None:
    stated = gang_of(scene)
    stated.meta = msgspec.structs.replace(stated.meta, annotations={LIMIT: "90"})
    assert pod_group(stated)["metadata"]["annotations"] == {LIMIT: "90"}
    stated.spec["runPolicy"] = {"activeDeadlineSeconds": 60}
    assert pod_group(stated)["metadata"]["annotations"] == {LIMIT: "60"}


def test_a_limit_that_changes_is_written_and_one_that_somebody_else_wrote_is_left(scene: Build) -> None:
    one = gang_of(scene, runPolicy={"activeDeadlineSeconds": 600})
    made = pod_group(one)
    meta = ObjectMeta(name="pi", namespace="ns", annotations={LIMIT: "30"})
    found = PodGroup(metadata=meta, spec=made["spec"])
    dialect = dialect_of(PLUGINS)
    assert dialect is not None

    [patch] = ensure_pod_group(gang_of_mpijob(one.read().job), found, dialect, {})
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {LIMIT: "600"}}}
    assert ensure_pod_group(gang_of_mpijob(gang_of(scene).read().job), found, dialect, {}) == []


def test_the_queue_of_a_dialect_without_queues_stands_in_an_annotation(scene: Build) -> None:
    one = gang_of(scene, runPolicy={"schedulingPolicy": {"queue": "research"}})

    found = pod_group(one)

    assert found["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "research"}
    assert "queue" not in found["spec"]  # scheduler-plugins' PodGroup has no such field
