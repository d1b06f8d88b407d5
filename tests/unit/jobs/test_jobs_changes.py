"""What becomes of a job when something happens to it: failures, scaling, suspension, strangers, bad specs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gangline.jobs.plan import Create, Delete, Patch, Plan

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


def ran(scene: Build, **spec: Any) -> Any:
    one = scene(**spec).add_workers(spec.get("workers", 2)).add_children().add_launcher(**active())
    one.add_launcher_pod()
    one.settle_status()
    return one


# A worker that fails.


def fail_worker(one: Any, index: int, code: int, at: str = NOW_TEXT, **more: Any) -> None:
    end = {"exitCode": code, "reason": "Error", "finishedAt": at, **more}
    one.add_worker(index, "Failed", containerStatuses=[{"name": "main", "state": {"terminated": end}}])


def test_a_failed_worker_ends_the_job_and_is_named(scene: Build) -> None:
    one = ran(scene)
    fail_worker(one, 1, 137, reason="OOMKilled")

    plan = one.settle_status()

    assert one.conditions(plan)["Failed"] == ("True", "MPIJobWorkerFailed")
    assert one.conditions(plan)["Running"][0] == "False"
    assert one.message(plan, "Failed") == (
        "worker pod pi-worker-1 failed: container main was killed by signal 9 (SIGKILL), OOMKilled"
    )
    assert plan.status["completionTime"] == NOW_TEXT
    assert plan.status["replicaStatuses"]["Worker"] == {"active": 1, "failed": 1}
    assert events(plan) == [("Warning", "MPIJobWorkerFailed")]
    assert plan.actions == ()  # the end is written down first
    assert patches(one.plan()) == [("pi-launcher", "", {"spec": {"activeDeadlineSeconds": 1}})]


def test_of_several_failed_workers_the_first_is_named(scene: Build) -> None:
    one = ran(scene)
    fail_worker(one, 0, 1, "2026-05-01T12:00:09Z")
    fail_worker(one, 1, 7, "2026-05-01T12:00:02Z")

    assert one.message(one.plan(), "Failed") == (
        "worker pod pi-worker-1 failed: container main exited with code 7 (1 more failed)"
    )


def test_the_failed_launcher_that_follows_does_not_change_the_verdict(scene: Build) -> None:
    one = ran(scene)
    fail_worker(one, 1, 7)
    one.settle_status()
    one.add_launcher(failed=1, conditions=failed_with("DeadlineExceeded", "too long"))

    plan = one.plan(NOW + timedelta(seconds=2))

    assert one.conditions(plan)["Failed"] == ("True", "MPIJobWorkerFailed")
    assert plan.status["replicaStatuses"]["Launcher"] == {"failed": 1}
    assert (events(plan), plan.actions) == ([], ())


def test_an_evicted_worker_ends_a_job_that_forgives_nothing(scene: Build) -> None:
    one = ran(scene, runPolicy={"cleanPodPolicy": "Running", "backoffLimit": 0})
    one.add_worker(1, "Failed", reason="Evicted", message="the node was low on memory")

    plan = one.settle_status()

    assert one.conditions(plan)["Failed"] == ("True", "MPIJobEvicted")
    assert one.message(plan, "Failed").startswith("1/2 workers are evicted")
    assert plan.status["completionTime"] == NOW_TEXT
    assert deletions(plan) == []
    assert deletions(one.plan()) == ["pi-worker-0"]


def test_a_worker_that_its_node_refused_is_no_failure_and_is_made_anew(scene: Build) -> None:
    one = ran(scene)
    one.add_worker(1, "Failed", reason="OutOfcpu", message="Pod was rejected: Node didn't have enough cpu")

    plan = one.settle_status()

    assert "Failed" not in one.conditions(plan)
    assert deletions(plan) == ["pi-worker-1"]


def test_a_worker_that_fails_while_it_is_deleted_is_no_failure(scene: Build) -> None:
    one = ran(scene)
    fail_worker(one, 1, 143)
    pod = one.pods["pi-worker-1"]
    one.pods["pi-worker-1"] = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=NOW_TEXT))

    assert "Failed" not in one.conditions(one.plan())


def test_a_worker_that_fails_after_the_launcher_ended_well_is_no_failure(scene: Build) -> None:
    one = ran(scene)
    one.add_launcher_pod("Succeeded")
    fail_worker(one, 1, 1)

    assert "Failed" not in one.conditions(one.plan())


def test_an_elastic_job_lives_without_a_worker(scene: Build) -> None:
    one = scene()
    one.main("Launcher")["args"] = ["--host-discovery-script", "/etc/mpi/discover_hosts.sh"]
    one.add_children().add_workers(2).add_launcher(**active()).add_launcher_pod()
    fail_worker(one, 1, 1)

    plan = one.plan()

    assert "Failed" not in one.conditions(plan)
    assert plan.status["replicaStatuses"]["Worker"] == {"active": 1, "failed": 1}


# Host discovery.


def discover_patch(one: Any) -> str | None:
    found = [body["data"] for name, _, body in patches(one.plan()) if name == "pi-config"]
    return found[0]["discover_hosts.sh"] if found else None


def test_discover_hosts_is_written_once_all_workers_run(scene: Build) -> None:
    one = scene().add_children()
    one.add_worker(0)
    one.add_worker(1, "Pending")

    assert discover_patch(one) is None

    one.add_worker(1)

    assert discover_patch(one) == "#!/bin/sh\necho pi-worker-0.pi.ns.svc\necho pi-worker-1.pi.ns.svc\n"


def test_discover_hosts_follows_each_worker_of_a_launcher_that_asks(scene: Build) -> None:
    one = scene()
    one.main("Launcher")["command"] = [
        "sh",
        "-c",
        "horovodrun --host-discovery-script /etc/mpi/discover_hosts.sh",
    ]
    one.add_children()
    one.add_worker(0)

    assert discover_patch(one) == "#!/bin/sh\necho pi-worker-0.pi.ns.svc\n"


def test_discover_hosts_loses_a_host_that_runs_no_more(scene: Build) -> None:
    one = scene().add_workers(2).add_children()
    one.add_worker(1, "Pending")

    assert discover_patch(one) == "#!/bin/sh\necho pi-worker-0.pi.ns.svc\n"


# Scaling.


@pytest.mark.parametrize("launcher_too", [False, True])
def test_scaling_down_deletes_the_highest_workers_only(scene: Build, launcher_too: bool) -> None:
    one = scene(workers=2, runLauncherAsWorker=launcher_too).add_children().add_workers(4)

    plan = one.plan()

    assert deletions(plan) == ["pi-worker-2", "pi-worker-3"]
    assert creations(plan) == ["pi-launcher"]


def test_scaling_up_rewrites_the_hostfile(scene: Build) -> None:
    one = scene().add_children().add_workers(2).add_launcher(**active())
    one.role("Worker")["replicas"] = 3

    plan = one.plan()

    assert creations(plan) == ["pi-worker-2"]
    ((_, _, body),) = patches(plan)
    assert body["data"]["hostfile"].endswith("pi-worker-2.pi.ns.svc slots=1\n")


# Suspension.


def test_a_job_created_suspended_has_a_suspended_launcher_and_no_pods(scene: Build) -> None:
    one = scene(workers=8, runPolicy={"suspend": True})

    plan = one.plan()

    assert creations(plan) == ["pi", "pi-config", "pi-launcher"]
    (launcher,) = (a for a in plan.actions if isinstance(a, Create) and a.object["kind"] == "Job")
    assert launcher.object["spec"]["suspend"] is True
    assert one.conditions(plan) == {
        "Created": ("True", "MPIJobCreated"),
        "Running": ("False", "MPIJobSuspended"),
        "Suspended": ("True", "MPIJobSuspended"),
    }
    assert "startTime" not in plan.status
    assert events(plan) == [("Normal", "MPIJobCreated"), ("Normal", "MPIJobSuspended")]


def test_suspending_holds_the_launcher_before_the_workers_go(scene: Build) -> None:
    one = ran(scene, workers=8)
    one.spec["runPolicy"] = {"suspend": True}

    plan = one.plan()

    first, second = plan.stages
    assert first == (Patch(first[0].resource, "ns", "pi-launcher", {"spec": {"suspend": True}}),)
    assert [action.name for action in second] == [f"pi-worker-{index}" for index in range(8)]
    assert one.conditions(plan)["Suspended"] == ("True", "MPIJobSuspended")
    assert one.conditions(plan)["Running"] == ("False", "MPIJobSuspended")
    assert plan.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {}}


def suspended(scene: Build, **launcher: Any) -> Any:
    one = scene(workers=2, runPolicy={"suspend": True})
    one.add_children().settle_status()
    one.add_launcher(spec={"suspend": True, "template": {}}, **launcher)
    one.settle_status()
    return one


def test_resuming_creates_the_workers_then_releases_the_launcher(scene: Build) -> None:
    one = suspended(scene)
    one.spec["runPolicy"] = {}
    later = NOW + timedelta(minutes=1)

    plan = one.plan(later)

    first, second = plan.stages
    assert [action.object["metadata"]["name"] for action in first] == ["pi-worker-0", "pi-worker-1"]
    assert (second[0].name, second[0].body["spec"]["suspend"]) == ("pi-launcher", False)
    assert one.conditions(plan)["Suspended"] == ("False", "MPIJobResumed")
    assert plan.status["startTime"] == "2026-05-01T12:01:00Z"
    assert events(plan) == [("Normal", "MPIJobResumed")]


def test_the_last_condition_of_a_resumed_job_does_not_say_suspended(scene: Build) -> None:
    one = suspended(scene)
    assert list(one.conditions(one.plan()))[-1] == "Suspended"
    one.spec["runPolicy"] = {}

    assert list(one.conditions(one.plan()))[-1] == "Created"


def test_resuming_clears_the_start_time_first(scene: Build) -> None:
    one = suspended(scene, startTime=NOW_TEXT)
    one.spec["runPolicy"] = {}

    _, second, third = one.plan().stages

    assert (second[0].subresource, second[0].body) == ("status", {"status": {"startTime": None}})
    assert third[0].body["spec"]["suspend"] is False


def test_resuming_takes_over_what_was_edited_meanwhile(scene: Build) -> None:
    one = suspended(scene)
    template = {"spec": {"nodeSelector": {"old": "1", "kept": "1"}, "containers": []}}
    one.add_launcher(spec={"suspend": True, "template": template})
    one.spec["runPolicy"] = {}
    one.role("Launcher")["template"]["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "1"}}
    one.pod_spec("Launcher").update(
        nodeSelector={"kept": "1", "new": "1"},
        tolerations=[{"key": "t"}],
        schedulingGates=[{"name": "g"}],
    )

    body = one.plan().stages[-1][0].body["spec"]["template"]

    assert body["metadata"]["labels"]["l"] == "1"
    assert body["metadata"]["annotations"] == {"a": "1"}
    assert body["spec"] == {
        "nodeSelector": {"old": None, "kept": "1", "new": "1"},
        "tolerations": [{"key": "t"}],
        "schedulingGates": [{"name": "g"}],
    }


# Objects of others.


@pytest.mark.parametrize(
    ("collection", "name", "kind"),
    [
        ("services", "pi", "Service"),
        ("config_maps", "pi-config", "ConfigMap"),
        ("secrets", "pi-ssh", "Secret"),
    ],
)
def test_an_object_of_another_owner_stops_the_job(
    scene: Build, collection: str, name: str, kind: str
) -> None:
    one = scene().add_children()
    objects = getattr(one, collection)
    objects[name] = replace(objects[name], metadata=one.child_meta(name, foreign=True))

    plan = one.plan()

    assert plan.actions == ()
    (warning,) = plan.warnings
    assert (warning.type, warning.reason) == ("Warning", "ErrResourceExists")
    assert warning.message == (
        f'Resource "{name}" of Kind "{kind}" already exists and is not managed by MPIJob'
    )
    assert plan.requeue_after_s is not None


def test_a_foreign_worker_or_launcher_stops_the_job_too(scene: Build) -> None:
    one = scene().add_children().add_workers(1).add_launcher()
    for objects, name in ((one.pods, "pi-worker-0"), (one.jobs, "pi-launcher")):
        objects[name] = replace(objects[name], metadata=one.child_meta(name, foreign=True))

    plan = one.plan()

    assert [warning.message.split('"')[1] for warning in plan.warnings] == ["pi-launcher", "pi-worker-0"]
    assert plan.actions == ()


def test_leftovers_of_a_job_of_the_same_name_are_waited_for_in_silence(scene: Build) -> None:
    one = scene().add_children()
    meta = one.services["pi"].metadata
    earlier = [replace(meta.owner_references[0], uid="earlier")]
    one.services["pi"] = replace(one.services["pi"], metadata=replace(meta, owner_references=earlier))

    plan = one.plan()

    assert (plan.actions, plan.warnings) == ((), ())
    assert plan.requeue_after_s is not None


# Jobs that cannot be run.


def test_an_invalid_job_fails_with_every_error(scene: Build) -> None:
    one = scene(slotsPerWorker=-1, mpiImplementation="Other")

    plan = one.plan()

    assert plan.actions == ()
    assert one.conditions(plan)["Failed"] == ("True", "ValidationError")
    message = one.message(plan, "Failed")
    assert message.startswith("Found validation errors: spec.slotsPerWorker: Invalid")
    assert "spec.mpiImplementation: NotSupported" in message
    assert events(plan) == [("Warning", "ValidationError")]
    one.settle_status()
    assert one.plan().is_empty


def test_mending_an_invalid_job_starts_it(scene: Build) -> None:
    one = scene(slotsPerWorker=-1)
    one.settle_status()
    one.spec["slotsPerWorker"] = 1

    plan = one.plan()

    assert list(one.conditions(plan)) == ["Created"]
    assert "completionTime" not in plan.status
    assert "pi-launcher" in creations(plan)


def test_a_bad_edit_of_a_running_job_changes_nothing_but_warns(scene: Build) -> None:
    one = ran(scene)
    one.spec["slotsPerWorker"] = 0

    plan = one.plan()

    assert (plan.actions, plan.status) == ((), None)
    assert [warning.reason for warning in plan.warnings] == ["ValidationError"]


def test_pods_that_the_server_will_never_take_fail_the_job(scene: Build) -> None:
    one = scene().add_children()
    one.rejected = ("worker pod created failed: spec.containers[0].image: Required value",)

    plan = one.plan()

    assert one.conditions(plan)["Failed"] == ("True", "MPIJobFailed")
    assert one.message(plan, "Failed") == one.rejected[0]
    assert creations(plan) == []
