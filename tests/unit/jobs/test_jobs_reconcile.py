"""What one look at an MPIJob leads to: actions, conditions, events. Objects to the letter: other file."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gangline.jobs.plan import Create, Delete, EnsureKeyPair, Patch, Plan

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
NOW_TEXT = "2026-05-01T12:00:00Z"
COMPLETE = [{"type": "Complete", "status": "True"}]

Build = Callable[..., Any]


def failed_with(reason: str, message: str) -> list[dict[str, str]]:
    return [{"type": "Failed", "status": "True", "reason": reason, "message": message}]


def creations(plan: Plan) -> list[str]:
    return [a.object["metadata"]["name"] for a in plan.actions if isinstance(a, Create)]


def deletions(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Delete)]


def patches(plan: Plan) -> list[tuple[str, str, Any]]:
    return [(a.name, a.subresource, a.body) for a in plan.actions if isinstance(a, Patch)]


def events(plan: Plan) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in plan.events]


def active(index: int = 0) -> dict[str, Any]:
    return {"startTime": NOW_TEXT, "active": 1, "failed": index}


# Creation.


@pytest.mark.parametrize("implementation", ["OpenMPI", "Intel", "MPICH"])
def test_a_new_job_gets_all_its_children_in_one_stage(scene: Build, implementation: str) -> None:
    one = scene(workers=5, mpiImplementation=implementation)

    plan = one.plan()

    assert len(plan.stages) == 1
    assert creations(plan) == ["pi", "pi-config", *(f"pi-worker-{i}" for i in range(5)), "pi-launcher"]
    assert sum(isinstance(action, EnsureKeyPair) for action in plan.actions) == 1
    assert plan.status == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "MPIJobCreated",
                "message": "MPIJob ns/pi is created.",
                "lastTransitionTime": NOW_TEXT,
                "lastUpdateTime": NOW_TEXT,
            }
        ],
        "replicaStatuses": {"Launcher": {}, "Worker": {}},
        "startTime": NOW_TEXT,
        "workers": 5,
    }
    assert events(plan) == [("Normal", "MPIJobCreated")]
    assert plan.counts == ("created",)


def test_a_job_without_workers_is_a_launcher_alone(scene: Build) -> None:
    assert creations(scene(workers=None).plan()) == ["pi", "pi-config", "pi-launcher"]


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", "", "invalid.com/controller"])
def test_a_job_of_another_manager_is_left_alone(scene: Build, manager: str) -> None:
    assert scene(runPolicy={"managedBy": manager}).plan().is_empty


def test_a_job_that_names_this_manager_is_run(scene: Build) -> None:
    assert creations(scene(runPolicy={"managedBy": "kubeflow.org/mpi-operator"}).plan())


def test_a_job_that_is_being_deleted_is_left_alone(scene: Build) -> None:
    one = scene()
    one.meta = replace(one.meta, deletion_timestamp=NOW_TEXT)

    assert one.plan().is_empty


def test_a_restart_policy_in_the_template_is_overridden_and_said(scene: Build) -> None:
    one = scene()
    one.pod_spec("Launcher")["restartPolicy"] = "Always"

    assert ("Warning", "SetPodTemplateRestartPolicy") in events(one.plan())


def test_missing_workers_are_created_and_present_ones_kept(scene: Build) -> None:
    one = scene(workers=3).add_children()
    one.add_worker(1)

    assert creations(one.plan()) == ["pi-worker-0", "pi-worker-2", "pi-launcher"]


def test_a_secret_without_the_two_keys_gets_a_fresh_pair(scene: Build) -> None:
    one = scene().add_children()
    one.secrets["pi-ssh"] = replace(one.secrets["pi-ssh"], data={"ssh-privatekey": "x"})

    (action,) = (a for a in one.plan().actions if isinstance(a, EnsureKeyPair))
    assert action.exists


def test_a_secret_without_ssh_configuration_gets_it_and_keeps_its_keys(scene: Build) -> None:
    one = scene().add_children()
    pair = {"ssh-privatekey": "eA==", "ssh-publickey": "eQ=="}
    one.secrets["pi-ssh"] = replace(one.secrets["pi-ssh"], data=pair)

    (action,) = one.plan().actions[:1]
    assert isinstance(action, Patch)
    assert (action.name, list(action.body["data"])) == ("pi-ssh", ["ssh-config"])


def test_a_changed_service_is_put_right(scene: Build) -> None:
    one = scene(runLauncherAsWorker=True).add_children()
    service = one.services["pi"]
    one.services["pi"] = replace(
        service, spec=replace(service.spec, publish_not_ready_addresses=False, selector={"x": "y"})
    )

    (patch,) = (a for a in one.plan().actions if isinstance(a, Patch))
    assert patch.body["spec"]["publishNotReadyAddresses"] is True
    assert patch.body["spec"]["selector"]["x"] is None
    assert patch.body["spec"]["selector"]["training.kubeflow.org/job-name"] == "pi"


def test_fields_that_a_server_adds_are_no_difference(scene: Build) -> None:
    one = scene().add_children().add_workers(2, "Pending").add_launcher()
    service = one.services["pi"]
    one.services["pi"] = replace(service, spec=replace(service.spec, type="ClusterIP", ports=[{"port": 1}]))
    one.settle_status()

    assert one.plan().is_empty


# A launcher that waits for its workers.


def test_the_launcher_waits_for_ready_workers_if_asked(scene: Build) -> None:
    one = scene(launcherCreationPolicy="WaitForWorkersReady").add_children()
    one.add_worker(0)
    one.add_worker(1, ready=False)

    assert "pi-launcher" not in creations(one.plan())

    one.add_worker(1)

    assert creations(one.plan()) == ["pi-launcher"]


def test_a_launcher_that_waits_is_not_created_while_suspended(scene: Build) -> None:
    one = scene(launcherCreationPolicy="WaitForWorkersReady", runPolicy={"suspend": True})

    assert creations(one.plan()) == ["pi", "pi-config"]


def test_a_launcher_that_waits_is_not_released_before_the_workers_are_ready(scene: Build) -> None:
    one = scene(launcherCreationPolicy="WaitForWorkersReady").add_children()
    one.add_launcher(spec={"suspend": True, "template": {}})

    assert patches(one.plan()) == []

    one.add_workers(2)

    assert [
        name for name, _, body in patches(one.plan()) if body.get("spec", {}).get("suspend") is False
    ] == ["pi-launcher"]


# Running.


def test_running_needs_the_launcher_and_every_worker(scene: Build) -> None:
    one = scene().add_children().add_launcher(**active()).add_launcher_pod()
    one.add_worker(0)
    one.add_worker(1, "Pending")

    plan = one.settle_status()

    assert "Running" not in one.conditions(plan)
    assert plan.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 1}}

    one.add_worker(1)
    plan = one.settle_status()

    assert one.conditions(plan)["Running"] == ("True", "MPIJobRunning")
    assert plan.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert events(plan) == [("Normal", "MPIJobRunning")]
    assert events(one.plan()) == []


def test_workers_alone_are_counted_but_the_job_does_not_run(scene: Build) -> None:
    one = scene(workers=16).add_children().add_workers(16)

    plan = one.plan()

    assert creations(plan) == ["pi-launcher"]
    assert plan.status["replicaStatuses"]["Worker"] == {"active": 16}
    assert "Running" not in one.conditions(plan)


def test_a_failed_launcher_pod_alone_is_counted_only(scene: Build) -> None:
    one = scene().add_children().add_workers(2).add_launcher(failed=1, active=1)
    one.add_launcher_pod("Failed")

    plan = one.plan()

    assert plan.status["replicaStatuses"]["Launcher"] == {"failed": 1}
    assert "Failed" not in one.conditions(plan)


# The end.


def ran(scene: Build, **spec: Any) -> Any:
    one = scene(**spec).add_workers(spec.get("workers", 2)).add_children().add_launcher(**active())
    one.add_launcher_pod()
    one.settle_status()
    return one


def test_a_complete_launcher_is_success(scene: Build) -> None:
    one = ran(scene)
    one.add_launcher(succeeded=1, conditions=COMPLETE, completionTime="2026-05-01T12:03:00Z")

    plan = one.plan(NOW + timedelta(minutes=5))

    assert one.conditions(plan) == {
        "Created": ("True", "MPIJobCreated"),
        "Running": ("False", "MPIJobRunning"),
        "Succeeded": ("True", "MPIJobSucceeded"),
    }
    assert one.message(plan, "Succeeded") == "MPIJob ns/pi successfully completed."
    assert plan.status["completionTime"] == "2026-05-01T12:03:00Z"
    assert plan.status["replicaStatuses"]["Launcher"] == {"succeeded": 1}
    assert events(plan) == [("Normal", "MPIJobSucceeded")]
    assert plan.counts == ("successful",)


def test_a_job_that_was_never_seen_running_says_so(scene: Build) -> None:
    one = scene().add_children().add_launcher(succeeded=1, conditions=COMPLETE)

    plan = one.plan()

    assert one.conditions(plan)["Running"] == ("False", "MPIJobRunning")
    assert one.message(plan, "Running").endswith("is finished but Running condition was never set.")
    assert list(one.conditions(plan))[-1] == "Succeeded"


def test_running_is_not_told_again_after_the_end(scene: Build) -> None:
    one = ran(scene)
    one.add_launcher(succeeded=1, conditions=COMPLETE)
    one.settle_status()

    plan = one.plan(NOW + timedelta(seconds=9))

    assert plan.is_empty


def test_a_failed_launcher_is_failure_with_the_words_of_its_newest_pod(scene: Build) -> None:
    one = ran(scene)
    reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    one.add_launcher(failed=2, conditions=failed_with(reason, message))
    one.add_launcher_pod("Failed", suffix="1", reason="FailedReason1", message="first message")
    one.add_launcher_pod("Failed", suffix="2", reason="FailedReason2", message="second message")

    plan = one.plan()

    assert one.conditions(plan)["Failed"] == ("True", "BackoffLimitExceeded/FailedReason2")
    assert one.message(plan, "Failed") == f"{message}: second message"
    assert plan.status["replicaStatuses"]["Launcher"] == {"failed": 2}
    assert plan.status["completionTime"] == NOW_TEXT
    assert events(plan) == [("Warning", "BackoffLimitExceeded/FailedReason2")]
    assert plan.counts == ("failed",)


def test_a_launcher_pod_without_words_is_described_by_its_exit_code(scene: Build) -> None:
    one = ran(scene)
    one.add_launcher(failed=1, conditions=failed_with("BackoffLimitExceeded", "limit"))
    end = {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    one.add_launcher_pod("Failed", containerStatuses=[end])

    plan = one.plan()

    assert one.conditions(plan)["Failed"] == ("True", "BackoffLimitExceeded")
    assert one.message(plan, "Failed") == "limit: pod pi-launcher-abcde: container main exited with code 3"


def test_a_long_message_is_cut(scene: Build) -> None:
    one = ran(scene)
    one.add_launcher(failed=1, conditions=failed_with("DeadlineExceeded", "x" * 3000))

    message = one.message(one.plan(), "Failed")

    assert len(message) == 1024
    assert message.endswith("x...")


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ("All", ["pi-worker-0", "pi-worker-1", "pi-worker-2", "pi-worker-3"]),
        ("Running", ["pi-worker-0", "pi-worker-1"]),
        ("None", []),
    ],
)
def test_workers_are_cleaned_as_the_policy_says(scene: Build, policy: str, want: list[str]) -> None:
    one = ran(scene, workers=4, runPolicy={"cleanPodPolicy": policy})
    one.add_worker(1, "Pending")
    one.add_worker(2, "Succeeded")
    one.add_worker(3, "Failed")
    one.add_launcher(succeeded=1, conditions=COMPLETE)

    plan = one.settle_status()

    assert deletions(plan) == []  # the end is written down first
    assert deletions(one.plan()) == want
    if policy != "None":
        assert plan.status["replicaStatuses"]["Worker"] == {}


def test_a_launcher_goes_after_its_time_only_once_its_end_is_written_down(scene: Build) -> None:
    one = ran(scene, runPolicy={"ttlSecondsAfterFinished": 0})
    one.add_launcher(succeeded=1, conditions=COMPLETE)

    assert patches(one.settle_status()) == []
    assert patches(one.plan()) == [("pi-launcher", "", {"spec": {"ttlSecondsAfterFinished": 0}})]

    one.add_launcher(spec={"ttlSecondsAfterFinished": 0}, succeeded=1, conditions=COMPLETE)
    assert patches(one.plan()) == []


def test_a_worker_that_is_going_is_not_deleted_again(scene: Build) -> None:
    one = ran(scene, runPolicy={"cleanPodPolicy": "All"})
    one.add_launcher(succeeded=1, conditions=COMPLETE)
    for name in ("pi-worker-0", "pi-worker-1"):
        pod = one.pods[name]
        one.pods[name] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=NOW_TEXT))

    assert deletions(one.plan()) == []


def test_the_launcher_is_kept_after_the_end(scene: Build) -> None:
    one = ran(scene, runPolicy={"cleanPodPolicy": "All"})
    one.add_launcher(succeeded=1, conditions=COMPLETE)

    assert patches(one.plan()) == []
