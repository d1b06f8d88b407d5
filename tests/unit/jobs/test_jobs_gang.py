"""PodGroups: what each gang scheduler is told of a job.

In scope: the objects, how much they ask for, when they come and go. Out of scope: placing gangs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gangline.api.core import ObjectMeta
from gangline.api.crds import gang_crds
from gangline.api.pod_group import PodGroup
from gangline.jobs.gang import (
    build_pod_group,
    dialect_of,
    gang_priority_class,
    min_member,
    min_resources,
)
from gangline.jobs.mpijob_gang import gang_of_mpijob
from gangline.jobs.plan import Create, Delete, Patch, Plan
from gangline.jobs.pods import build_launcher
from gangline.jobs.settings import Settings
from gangline.units import format_quantity

Build = Callable[..., Any]
PLUGINS = "scheduler-plugins-scheduler"
COMPLETE = [{"type": "Complete", "status": "True"}]


def ask(one: Any, role: str, *, priority: str = "", **requests: str) -> None:
    one.main(role)["resources"] = {"requests": requests}
    if priority:
        one.pod_spec(role)["priorityClassName"] = priority


def gang(scene: Build, scheduler: str = PLUGINS, **spec: Any) -> Any:
    one = scene(**spec)
    one.settings = Settings(gang_scheduling=scheduler)
    ask(one, "Launcher", cpu="1", memory="2Gi")
    if "Worker" in one.spec["mpiReplicaSpecs"]:
        ask(one, "Worker", cpu="10", memory="20Gi")
    return one


def with_policy(scene: Build, scheduler: str = PLUGINS, workers: int | None = 2, **policy: Any) -> Any:
    return gang(scene, scheduler, workers=workers, runPolicy={"schedulingPolicy": policy})


def pod_group(one: Any, priorities: dict[str, int] | None = None) -> dict[str, Any]:
    dialect = dialect_of(one.settings.gang_scheduling)
    assert dialect is not None
    return build_pod_group(gang_of_mpijob(one.read().job), dialect, priorities or {})


def keep_pod_group(one: Any, **spec: Any) -> None:
    """Put the job's PodGroup into the scene, ``spec`` laid over it."""
    wire = pod_group(one)
    meta = one.child_meta(one.name)
    one.pod_groups[one.name] = PodGroup(metadata=meta, spec={**wire["spec"], **spec})


def about_pod_groups(plan: Plan) -> list[Any]:
    return [
        action
        for action in plan.actions
        if isinstance(action, Create | Patch | Delete) and action.resource.kind == "PodGroup"
    ]


# The objects.


def test_a_pod_group_of_scheduler_plugins(scene: Build) -> None:
    one = with_policy(scene, minAvailable=2, queue="q", minResources={"cpu": "3"}, scheduleTimeoutSeconds=180)

    found = pod_group(one)

    assert (found["apiVersion"], found["kind"]) == ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    assert found["metadata"]["name"] == "pi"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert found["spec"] == {"minMember": 2, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 180}


def test_a_pod_group_of_volcano(scene: Build) -> None:
    one = with_policy(
        scene, "volcano", minAvailable=2, queue="q", minResources={"cpu": "3"}, priorityClass="high"
    )
    annotations = {"scheduling.volcano.sh/queue-name": "other"}
    one.meta = msgspec.structs.replace(one.meta, annotations=annotations)

    found = pod_group(one)

    assert found["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert found["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "3"},
        "queue": "q",
        "priorityClassName": "high",
    }


def test_without_a_policy_queue_and_priority_come_from_the_job(scene: Build) -> None:
    one = gang(scene, "volcano")
    annotations = {"scheduling.volcano.sh/queue-name": "project"}
    one.meta = msgspec.structs.replace(one.meta, annotations=annotations)
    one.pod_spec("Launcher")["priorityClassName"] = "high"

    assert pod_group(one)["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "21", "memory": "42Gi"},
        "queue": "project",
        "priorityClassName": "high",
    }


def test_without_a_policy_the_timeout_is_zero(scene: Build) -> None:
    assert pod_group(gang(scene))["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "21", "memory": "42Gi"},
        "scheduleTimeoutSeconds": 0,
    }


@pytest.mark.parametrize("scheduler", ["volcano", PLUGINS])
def test_a_launcher_alone_is_a_gang_of_one(scene: Build, scheduler: str) -> None:
    one = with_policy(scene, scheduler, workers=None, minAvailable=1)
    one.spec["runLauncherAsWorker"] = True

    spec = pod_group(one)["spec"]

    assert (spec["minMember"], spec["minResources"]) == (1, {"cpu": "1", "memory": "2Gi"})


# How many, how important.


@pytest.mark.parametrize(
    ("policy", "workers", "want"),
    [({"minAvailable": 2}, 9, 2), ({}, 99, 100), ({}, None, 1)],
    ids=["as given", "all workers and the launcher", "the launcher alone"],
)
def test_the_least_number_of_pods(scene: Build, policy: Any, workers: int | None, want: int) -> None:
    assert min_member(gang_of_mpijob(with_policy(scene, workers=workers, **policy).read().job)) == want


def test_a_launcher_that_waits_is_no_part_of_the_gang(scene: Build) -> None:
    """Upstream counts it, and then neither workers nor launcher ever start."""
    one = gang(scene, launcherCreationPolicy="WaitForWorkersReady")

    assert min_member(gang_of_mpijob(one.read().job)) == 2
    assert pod_group(one)["spec"]["minResources"] == {"cpu": "20", "memory": "40Gi"}


@pytest.mark.parametrize(
    ("policy", "launcher", "worker", "want"),
    [("p", "l", "w", "p"), ("", "l", "w", "l"), ("", "", "w", "w"), ("", "", "", "")],
)
def test_the_priority_class_of_a_gang(
    scene: Build, policy: str, launcher: str, worker: str, want: str
) -> None:
    one = with_policy(scene, **({"priorityClass": policy} if policy else {}))
    for role, name in (("Launcher", launcher), ("Worker", worker)):
        if name:
            one.pod_spec(role)["priorityClassName"] = name

    assert gang_priority_class(gang_of_mpijob(one.read().job)) == want


# How much.


def resources(one: Any, **priorities: int) -> Any:
    return min_resources(gang_of_mpijob(one.read().job), priorities)


def test_given_resources_are_taken_as_they_are(scene: Build) -> None:
    assert resources(with_policy(scene, minResources={"cpu": "3000m"})) == {"cpu": "3000m"}


def test_a_gang_of_none_asks_for_nothing(scene: Build) -> None:
    assert resources(with_policy(scene, minAvailable=0)) is None


def test_without_priorities_the_launcher_counts_first(scene: Build) -> None:
    one = with_policy(scene, minAvailable=2, workers=100)
    ask(one, "Launcher", cpu="2", memory="1Gi")
    ask(one, "Worker", cpu="20", memory="64Gi")

    assert resources(one) == {"cpu": "22", "memory": "65Gi"}


def test_a_launcher_of_higher_priority_counts_first(scene: Build) -> None:
    one = with_policy(scene, minAvailable=2, workers=100)
    ask(one, "Launcher", priority="high", cpu="2", memory="4Gi")
    ask(one, "Worker", priority="low", cpu="20", memory="64Gi")

    assert resources(one, high=100, low=1) == {"cpu": "22", "memory": "68Gi"}


def test_workers_of_higher_priority_count_first(scene: Build) -> None:
    """Upstream counts all 100 of them, whatever the least number is."""
    one = with_policy(scene, minAvailable=2, workers=100)
    ask(one, "Launcher", priority="low", cpu="2", memory="4Gi")
    ask(one, "Worker", priority="high", cpu="20", memory="64Gi")

    assert resources(one, high=100, low=1) == {"cpu": "40", "memory": "128Gi"}


def test_a_priority_class_that_does_not_exist_counts_as_zero(scene: Build) -> None:
    one = with_policy(scene, minAvailable=2)
    ask(one, "Launcher", priority="nowhere", cpu="2", memory="2Gi")
    ask(one, "Worker", priority="nowhere", cpu="5", memory="16Gi")

    assert resources(one) == {"cpu": "7", "memory": "18Gi"}


def test_every_container_of_a_pod_counts(scene: Build) -> None:
    one = with_policy(scene, workers=1)
    ask(one, "Launcher", cpu="2", memory="1Gi")
    ask(one, "Worker", cpu="100", memory="512Gi")
    side = {"name": "side", "image": "i", "resources": {"requests": {"cpu": "20", "memory": "576Gi"}}}
    one.pod_spec("Worker")["containers"].append(side)
    one.pod_spec("Worker")["initContainers"] = [side | {"name": "init"}]

    assert resources(one) == {"cpu": "122", "memory": "1089Gi"}


def test_more_than_there_are_pods_counts_them_all(scene: Build) -> None:
    assert resources(with_policy(scene, minAvailable=10)) == {"cpu": "21", "memory": "42Gi"}


def test_adding_resources(scene: Build) -> None:
    one = with_policy(scene, workers=2)
    ask(one, "Launcher", cpu="1")
    ask(one, "Worker", cpu="500m", memory="1Gi")

    assert resources(one) == {"cpu": "2", "memory": "2Gi"}


def test_requests_win_over_limits_and_a_limit_alone_counts(scene: Build) -> None:
    one = with_policy(scene, workers=3)
    ask(one, "Launcher")
    limits = {"cpu": "4", "aliyun.com/gpu": 2}
    one.main("Worker")["resources"] = {"requests": {"cpu": "1"}, "limits": limits}

    assert resources(one) == {"cpu": "3", "aliyun.com/gpu": "6"}, "names stay as written"


@pytest.mark.parametrize("nothing", [{}, {"requests": None, "limits": None}, None, "text"])
def test_a_container_may_ask_for_nothing(scene: Build, nothing: Any) -> None:
    one = with_policy(scene, workers=1)
    ask(one, "Launcher")
    one.main("Worker")["resources"] = nothing

    assert resources(one) == {}


def test_what_a_pod_needs_besides_its_containers_counts(scene: Build) -> None:
    one = with_policy(scene, workers=2)
    ask(one, "Launcher", cpu="1")
    ask(one, "Worker", cpu="2")
    start = {"name": "start", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    one.pod_spec("Worker").update(initContainers=[start], overhead={"cpu": "250m", "memory": "64Mi"})

    assert resources(one) == {"cpu": "7500m", "memory": "128Mi"}


@pytest.mark.parametrize(
    ("value", "binary", "want"),
    [
        ("0", False, "0"),
        ("21", False, "21"),
        ("1000", False, "1k"),
        ("0.5", False, "500m"),
        ("1.5", False, "1500m"),
        ("0.0000000001", False, "1n"),
        (str(42 * 2**30), True, "42Gi"),
        (str(3 * 2**29), True, "1536Mi"),
        ("1000", True, "1000"),
    ],
)
def test_quantities_are_written_with_the_largest_suffix_that_loses_nothing(
    value: str, binary: bool, want: str
) -> None:
    assert format_quantity(Decimal(value), binary=binary) == want


# The pods.


def pods_of(plan: Plan) -> list[dict[str, Any]]:
    """The worker pods and the launcher's template."""
    made = [action.object for action in plan.actions if isinstance(action, Create)]
    return [m for m in made if m["kind"] == "Pod"] + [
        m["spec"]["template"] for m in made if m["kind"] == "Job"
    ]


def test_pods_join_a_gang_of_volcano_by_annotation(scene: Build) -> None:
    for pod in pods_of(gang(scene, "volcano").plan()):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "pi"


def test_pods_join_a_gang_of_scheduler_plugins_by_label(scene: Build) -> None:
    for pod in pods_of(gang(scene).plan()):
        assert pod["spec"]["schedulerName"] == PLUGINS
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "pi"


def test_without_gang_scheduling_pods_are_nobodys(scene: Build) -> None:
    one = with_policy(scene, "", minAvailable=2)
    plan = one.plan()

    assert about_pod_groups(plan) == []
    assert all("schedulerName" not in pod["spec"] for pod in pods_of(plan))


def test_another_scheduler_in_the_template_is_overridden_and_said(scene: Build) -> None:
    one = gang(scene)
    one.pod_spec("Worker")["schedulerName"] = "mine"

    plan = one.plan()

    assert {pod["spec"]["schedulerName"] for pod in pods_of(plan)} == {PLUGINS}
    assert [warning.reason for warning in plan.warnings] == ["SchedulerNameOverridden"]


def test_a_priority_class_that_does_not_exist_is_said(scene: Build) -> None:
    one = gang(scene)
    ask(one, "Worker", priority="nowhere", cpu="1")

    assert [w.message for w in one.plan().warnings] == [
        "PriorityClass nowhere does not exist and counts as 0"
    ]
    one.priorities = {"nowhere": 5}
    assert one.plan().warnings == ()


# Coming and going.


def test_the_pod_group_comes_before_the_pods(scene: Build) -> None:
    first, second = gang(scene).plan().stages

    assert [action.resource.kind for action in first if isinstance(action, Create)] == [
        "Service",
        "ConfigMap",
        "PodGroup",
    ]
    assert [action.resource.kind for action in second] == ["Pod", "Pod", "Job"]


def test_an_unchanged_pod_group_is_left_alone(scene: Build) -> None:
    one = gang(scene)
    keep_pod_group(one, minTaskMember={"x": 1}, queue="default")

    assert about_pod_groups(one.plan()) == []


@pytest.mark.parametrize(
    ("scheduler", "policy", "want"),
    [
        (PLUGINS, {"scheduleTimeoutSeconds": 10}, {"scheduleTimeoutSeconds": 10}),
        ("volcano", {"queue": "other"}, {"queue": "other"}),
        ("volcano", {"minAvailable": 0}, {"minMember": 0, "minResources": None}),
    ],
)
def test_an_edited_policy_reaches_the_pod_group(scene: Build, scheduler: str, policy: Any, want: Any) -> None:
    one = gang(scene, scheduler)
    keep_pod_group(one)
    one.spec["runPolicy"] = {"schedulingPolicy": policy}

    (patch,) = about_pod_groups(one.plan())

    assert patch.body == {"spec": want}


def test_a_suspended_job_has_no_pod_group(scene: Build) -> None:
    one = gang(scene)
    keep_pod_group(one)
    one.spec["runPolicy"] = {"suspend": True}

    (deletion,) = about_pod_groups(one.plan())

    assert (deletion.name, deletion.uid) == ("pi", "pi-uid")


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_finished_job_has_no_pod_group_whatever_is_kept_of_its_pods(scene: Build, policy: str) -> None:
    one = gang(scene, runPolicy={"cleanPodPolicy": policy}).add_workers(2).add_children()
    keep_pod_group(one)
    one.add_launcher(conditions=COMPLETE)
    one.settle_status()

    assert [type(action) for action in about_pod_groups(one.plan())] == [Delete]


def test_a_pod_group_of_somebody_else_stops_the_job(scene: Build) -> None:
    one = gang(scene)
    one.pod_groups["pi"] = PodGroup(metadata=ObjectMeta(name="pi", namespace="ns", uid="x"))

    plan = one.plan()

    assert plan.actions == ()
    assert [warning.reason for warning in plan.warnings] == ["ErrResourceExists"]


def test_definitions_of_both_kinds_of_pod_groups_and_of_queues() -> None:
    assert [crd["metadata"]["name"] for crd in gang_crds()] == [
        "podgroups.scheduling.x-k8s.io",
        "podgroups.scheduling.volcano.sh",
        "queues.scheduling.volcano.sh",
    ]


@pytest.mark.parametrize(
    ("policy", "scheduler", "want"), [("Never", PLUGINS, True), ("OnFailure", PLUGINS, False)]
)
def test_a_launcher_that_is_taken_away_with_its_gang_does_not_count_as_failed(
    scene: Build, policy: str, scheduler: str, want: bool
) -> None:
    one = gang(scene, scheduler)
    one.spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = policy

    launcher = build_launcher(one.read().job, dialect_of(scheduler))

    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert launcher["spec"].get("podFailurePolicy") == ({"rules": [rule]} if want else None)
