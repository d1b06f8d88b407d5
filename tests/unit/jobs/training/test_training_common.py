"""What jobs of every kind of the training operator's family have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline.jobs.settings import Settings
from gangline.jobs.training.failures import is_retryable

from .conftest import TrainingScene, created, deleted

Scene = Callable[..., TrainingScene]
KINDS = [("PyTorchJob", {"Master": 1, "Worker": 2}), ("TFJob", {"Chief": 1, "Worker": 2})]
each_kind = pytest.mark.parametrize(("kind", "roles"), KINDS, ids=[kind for kind, _ in KINDS])


@each_kind
def test_every_replica_gets_a_pod_and_a_headless_service_of_its_name(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    plan = training(kind, roles).plan()
    head = next(iter(roles)).lower()

    names = {f"train-{head}-0", "train-worker-0", "train-worker-1"}
    assert set(created(plan, "Pod")) == set(created(plan, "Service")) == names
    pod, service = created(plan, "Pod")["train-worker-1"], created(plan, "Service")["train-worker-1"]
    labels = {
        "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert pod["metadata"]["labels"] == service["metadata"]["labels"] == service["spec"]["selector"] == labels
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert created(plan, "Pod")[f"train-{head}-0"]["metadata"]["labels"] == {
        **labels,
        "training.kubeflow.org/replica-type": head,
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": kind,
            "name": "train",
            "uid": "job-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@each_kind
def test_a_job_that_stands_is_left_alone(training: Scene, kind: str, roles: dict[str, int]) -> None:
    scene = training(kind, roles)
    scene.carry_out()

    plan = scene.plan()

    assert (plan.actions, plan.status) == ((), None)


@pytest.mark.parametrize(
    ("manager", "is_ours"),
    [
        (None, True),
        ("kubeflow.org/training-operator", True),
        ("", False),
        ("kueue.x-k8s.io/multikueue", False),
        ("other.dev/controller", False),
    ],
)
@each_kind
def test_a_job_of_another_manager_is_left_alone(
    training: Scene, kind: str, roles: dict[str, int], manager: str | None, is_ours: bool
) -> None:
    scene = training(kind, roles)
    if manager is not None:
        scene.policy(managedBy=manager)

    assert bool(scene.plan().actions) == is_ours


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", "ExitCode"])
@each_kind
def test_the_restart_policy_is_the_roles_and_exit_code_restarts_nothing_in_place(
    training: Scene, kind: str, roles: dict[str, int], policy: str
) -> None:
    pod = created(training(kind, roles).restart(policy).plan(), "Pod")["train-worker-0"]

    assert pod["spec"]["restartPolicy"] == ("Never" if policy == "ExitCode" else policy)


@pytest.mark.parametrize(
    ("code", "v1", "v1beta2"),
    [
        (1, False, False), (2, False, False), (3, False, False), (126, False, False), (127, False, False),
        (128, True, False), (130, True, True), (137, True, True), (138, True, True), (139, True, False),
        (143, True, True), (144, True, False), (0xBEEF, True, False),
    ],
)  # fmt: skip
def test_exit_codes_that_are_worth_another_try(code: int, v1: bool, v1beta2: bool) -> None:
    assert is_retryable(code, is_v1beta2=False) == v1
    assert is_retryable(code, is_v1beta2=True) == v1beta2


@each_kind
def test_a_retryable_exit_is_counted_first_then_its_pod_alone_is_made_again(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    head = next(iter(roles))
    scene = training(kind, roles).restart("ExitCode").pods_of(head, "R").pods_of("Worker", "RR")
    scene.carry_out()
    scene.pod("Worker", 1, "Failed", code=130)

    plan = scene.plan()

    assert plan.actions == ()
    assert plan.status is not None and plan.status["restarts"] == 1
    assert scene.conditions(plan)["Restarting"] == "True"
    assert "Running" not in scene.conditions(plan)
    assert [(e.type, e.reason, e.message) for e in plan.events] == [
        ("Warning", f"{kind}Restarting", "job train is restarting because Worker replica(s) failed.")
    ]
    scene.status = plan.status
    assert deleted(scene.plan()) == ["train-worker-1"]
    scene.carry_out()
    assert scene.pods["train-worker-1"].status.phase == "Pending"
    assert scene.status["restarts"] == 1
    assert scene.status.get("restartingPods", []) == []
    assert scene.conditions()["Running"] == "True"


@each_kind
def test_a_permanent_exit_fails_the_job_with_its_time(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    head = next(iter(roles))
    scene = training(kind, roles).restart("ExitCode").pods_of(head, "R").pod("Worker", 0, "Failed", code=1)

    scene.settle()

    message = 'job "train" is failing because "Worker" replica(s) failed.'
    assert scene.condition("Failed") == ("True", f"{kind}Failed", message)
    assert scene.status["completionTime"] == "2026-05-01T12:00:00Z"


@pytest.mark.parametrize(
    ("limit", "failures", "fails"), [(0, 1, True), (1, 1, False), (1, 2, True), (2, 2, False)]
)
@each_kind
def test_pods_that_are_made_again_count_toward_the_backoff_limit(
    training: Scene, kind: str, roles: dict[str, int], limit: int, failures: int, fails: bool
) -> None:
    scene = training(kind, roles).restart("ExitCode").policy(backoffLimit=limit)
    for _ in range(failures):
        scene.pod("Worker", 0, "Failed", code=137)
        scene.carry_out()

    assert ("Failed" in scene.conditions()) == fails
    if fails:
        message = "Job train has failed because it has reached the specified backoff limit"
        assert scene.condition("Failed") == ("True", f"{kind}Failed", message)


@pytest.mark.parametrize(
    ("policy", "limit", "restarts", "fails"),
    [
        ("OnFailure", 4, 1, True),
        ("OnFailure", 5, 1, False),
        ("Always", 0, 1, True),
        ("OnFailure", 0, 0, False),
        ("Never", 1, 3, False),
    ],
)
def test_restarts_in_place_reach_the_limit_at_its_number(
    training: Scene, policy: str, limit: int, restarts: int, fails: bool
) -> None:
    scene = training("TFJob", {"Worker": 4}).restart(policy).policy(backoffLimit=limit)
    scene.pods_of("Worker", "RRRR", restarts=restarts)

    scene.settle()

    assert ("Failed" in scene.conditions()) == fails


@each_kind
def test_a_pod_that_its_node_refused_is_placed_anew_and_not_counted(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, roles).restart("Never").policy(backoffLimit=0)
    scene.pod("Worker", 0, "Failed", reason="OutOfcpu")

    scene.carry_out()

    assert scene.pods["train-worker-0"].status.phase == "Pending"
    assert (scene.status.get("restarts", 0), "Failed" in scene.conditions()) == (0, False)


@each_kind
def test_a_whole_gang_is_made_again_when_that_is_asked_for(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    head = next(iter(roles))
    scene = training(kind, roles).restart("Never").pods_of(head, "R").pods_of("Worker", "RR")
    scene.annotations["gangline.dev/on-worker-failure"] = "restart-gang"
    scene.carry_out()
    scene.pod("Worker", 1, "Failed", code=1)

    plan = scene.settle()

    assert deleted(plan) == sorted(scene.pods)
    assert scene.status["restarts"] == 1


# Deadline, time to live, cleaning.


@each_kind
def test_the_deadline_is_a_timer(training: Scene, kind: str, roles: dict[str, int]) -> None:
    scene = training(kind, roles).policy(activeDeadlineSeconds=60)
    scene.carry_out()

    assert scene.later(20).plan().requeue_after_s == 40
    scene.later(40).settle()

    message = "Job train has failed because it was active longer than specified deadline"
    assert scene.condition("Failed") == ("True", f"{kind}Failed", message)


@each_kind
def test_the_job_itself_is_deleted_when_its_time_is_over(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, roles).policy(ttlSecondsAfterFinished=30)
    scene.pods_of(next(iter(roles)), "S")
    scene.carry_out()

    assert scene.plan().requeue_after_s == 30
    assert deleted(scene.plan(), kind) == []
    plan = scene.later(30).plan()

    assert deleted(plan, kind) == ["train"]


@pytest.mark.parametrize(
    ("policy", "pods"),
    [
        ("None", []),
        ("Running", ["train-worker-0", "train-worker-2"]),
        ("All", ["train-{head}-0", "train-worker-0", "train-worker-1", "train-worker-2"]),
    ],
)
@each_kind
def test_pods_go_with_their_services_as_the_policy_says(
    training: Scene, kind: str, roles: dict[str, int], policy: str, pods: list[str]
) -> None:
    head = next(iter(roles))
    scene = training(kind, {head: 1, "Worker": 3}).policy(cleanPodPolicy=policy)
    scene.carry_out()
    scene.pods_of(head, "S").pods_of("Worker", "RFP")
    scene.status = scene.plan().status or {}

    plan = scene.plan()

    names = sorted(name.format(head=head.lower()) for name in pods)
    assert deleted(plan) == deleted(plan, "Service") == names
    assert scene.conditions()["Succeeded"] == "True"


def test_the_end_is_written_before_anything_goes(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1}).policy(cleanPodPolicy="All").pods_of("Master", "S")

    plan = scene.plan()

    assert plan.actions == ()
    assert scene.conditions(plan)["Succeeded"] == "True"


def test_what_still_runs_at_a_good_end_counts_as_done(training: Scene) -> None:
    scene = training("PyTorchJob", {"Master": 1, "Worker": 3}).pods_of("Master", "S").pods_of("Worker", "RRS")

    scene.settle()

    counted = {
        type_: (s.get("active", 0), s["succeeded"]) for type_, s in scene.status["replicaStatuses"].items()
    }
    assert counted == {"Master": (0, 1), "Worker": (0, 3)}


# Suspension.


@each_kind
def test_a_job_created_suspended_has_nothing(training: Scene, kind: str, roles: dict[str, int]) -> None:
    scene = training(kind, roles).policy(suspend=True)

    scene.carry_out()

    assert (scene.pods, scene.services) == ({}, {})
    assert scene.conditions() == {"Created": "True", "Suspended": "True"}
    assert scene.condition("Suspended") == ("True", f"{kind}Suspended", f"{kind} train is suspended.")
    assert "startTime" not in scene.status


@each_kind
def test_a_running_job_is_suspended_and_resumed(training: Scene, kind: str, roles: dict[str, int]) -> None:
    head = next(iter(roles))
    scene = training(kind, roles)
    scene.settings = Settings(gang_scheduling="gangline-scheduler")
    scene.carry_out()
    scene.pods_of(head, "R").pods_of("Worker", "RR")
    scene.carry_out()
    assert scene.conditions() == {"Created": "True", "Running": "True"}
    assert list(scene.pod_groups) == ["train"]

    scene.policy(suspend=True, cleanPodPolicy="None").carry_out()

    assert (scene.pods, scene.services, scene.pod_groups) == ({}, {}, {})
    assert scene.condition("Running")[:2] == ("False", f"{kind}Suspended")
    assert scene.conditions()["Suspended"] == "True"
    assert all(one.get("active", 0) == 0 for one in scene.status["replicaStatuses"].values())

    scene.later(100).policy(suspend=False).carry_out()

    assert len(scene.pods) == 3
    assert scene.condition("Suspended") == ("False", f"{kind}Resumed", f"{kind} train is resumed.")
    assert scene.status["startTime"] == "2026-05-01T12:01:40Z"


# Scale, gang, rules.


@each_kind
def test_replicas_beyond_the_wanted_number_go_and_missing_ones_come(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    head = next(iter(roles))
    scene = training(kind, {head: 1, "Worker": 3})
    scene.carry_out()
    specs: dict[str, Any] = scene.spec[scene.rules.kind.specs_field]

    specs["Worker"]["replicas"] = 1
    plan = scene.plan()
    assert deleted(plan) == deleted(plan, "Service") == ["train-worker-1", "train-worker-2"]
    scene.carry_out()

    specs["Worker"]["replicas"] = 2
    assert set(created(scene.plan(), "Pod")) == set(created(scene.plan(), "Service")) == {"train-worker-1"}


@each_kind
def test_a_job_that_breaks_rules_fails_and_starts_when_it_is_mended(
    training: Scene, kind: str, roles: dict[str, int]
) -> None:
    scene = training(kind, {**roles, "Boss": 1})

    scene.settle()

    assert scene.condition("Failed")[:2] == ("True", "ValidationError")
    assert "Boss" in scene.condition("Failed")[2]
    del scene.spec[scene.rules.kind.specs_field]["Boss"]
    scene.carry_out()
    assert scene.conditions() == {"Created": "True"}
    assert len(scene.pods) == 3


def test_events_of_what_is_made_carry_upstreams_words(training: Scene) -> None:
    [service, pod] = training("PyTorchJob", {"Master": 1}).plan().actions

    tellings = [
        (one.telling.done.reason, one.telling.done.message, one.telling.refused) for one in (service, pod)
    ]
    assert tellings == [
        ("SuccessfulCreateService", "Created service: train-master-0", "FailedCreateService"),
        ("SuccessfulCreatePod", "Created pod: train-master-0", "FailedCreatePod"),
    ]


def test_what_the_template_says_of_restarts_is_overwritten_with_a_warning(training: Scene) -> None:
    scene = training("TFJob", {"Worker": 1})
    scene.spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"

    plan = scene.plan()

    assert created(plan, "Pod")["train-worker-0"]["spec"]["restartPolicy"] == "Never"
    assert [(w.reason, w.message) for w in plan.warnings] == [
        (
            "SetPodTemplateRestartPolicy",
            "Restart policy in pod template will be overwritten by restart policy in replica spec",
        )
    ]


def test_exit_codes_are_told(training: Scene) -> None:
    plan = training("PyTorchJob", {"Master": 1}).pod("Master", 0, "Succeeded", code=0).plan()

    assert [(w.type, w.reason, w.message) for w in plan.warnings] == [
        ("Normal", "ExitedWithCode", "Pod: ns.train-master-0 exited with code 0")
    ]


def test_pods_that_fail_again_and_again_are_made_after_growing_pauses(training: Scene) -> None:
    scene = training("PyTorchJob", {"Worker": 1}).restart("ExitCode")
    pauses = []
    for attempt in range(6):
        scene.pod("Worker", 0, "Failed", code=137, uid=str(attempt))
        scene.settle()
        scene.pods.clear()
        plan = scene.plan()
        pauses.append(0.0 if created(plan, "Pod") else plan.requeue_after_s)
        scene.later(pauses[-1] or 0)
        assert list(created(scene.settle(), "Pod")) == ["train-worker-0"]

    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0]
