"""The MPI operator's integration cases without gangs, restated: events, status, children."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.resources import CONFIG_MAPS, JOBS, MPIJOBS, PODS, SECRETS, SERVICES
from gangline.kube.errors import Unavailable

Build = Callable[..., dict[str, Any]]


async def has_event(cluster: Any, reason: str, type_: str = "Normal") -> None:
    """Wait for an event about the job, and check all that does not vary."""

    async def found() -> Any:
        events = await cluster.events(reason)
        return [event for event in events if event["source"].get("component") == "mpi-job-controller"]

    event = (await cluster.until(found))[0]
    job = await cluster.job()
    involved = event["involvedObject"]
    assert event["type"] == type_
    assert (involved["apiVersion"], involved["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert (involved["name"], involved["uid"]) == ("pi", job["metadata"]["uid"])


async def replica_status(cluster: Any, role: str, wanted: dict[str, int]) -> None:
    async def is_so() -> bool:
        statuses = (await cluster.job()).get("status", {}).get("replicaStatuses", {})
        return bool(statuses.get(role) == wanted)

    await cluster.until(is_so)


async def replica_statuses(cluster: Any, wanted: dict[str, dict[str, int]]) -> None:
    """Wait until the roles counted are exactly these, as upstream's cases compare them."""

    async def is_so() -> bool:
        return bool((await cluster.job()).get("status", {}).get("replicaStatuses") == wanted)

    await cluster.until(is_so)


def volumes(pod_spec: dict[str, Any]) -> dict[str, str]:
    """Return what a pod mounts from its job: secret and config map names."""
    found = {}
    for volume in pod_spec["volumes"]:
        if "secret" in volume:
            found["secret"] = volume["secret"]["secretName"]
        if "configMap" in volume:
            found["configMap"] = volume["configMap"]["name"]
    return found


async def test_a_job_that_succeeds(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"cleanPodPolicy": "Running"}))
    await has_event(cluster, "MPIJobCreated")
    workers = await cluster.some_pods("worker", 2)
    service = await cluster.exists(SERVICES, "pi")
    await cluster.exists(SECRETS, "pi-ssh")
    await cluster.exists(CONFIG_MAPS, "pi-config")
    launcher_job = await cluster.launcher_job()
    for worker in workers:
        assert service["spec"]["selector"].items() <= worker["metadata"]["labels"].items()
        assert volumes(worker["spec"])["secret"] == "pi-ssh"
    assert volumes(launcher_job["spec"]["template"]["spec"]) == {
        "secret": "pi-ssh",
        "configMap": "pi-config",
    }

    for worker in workers:
        await cluster.set_phase(worker, "Running")
    await replica_status(cluster, "Worker", {"active": 2})
    (launcher,) = await cluster.some_pods("launcher", 1)
    await cluster.set_phase(launcher, "Running")
    await has_event(cluster, "MPIJobRunning")
    await replica_status(cluster, "Launcher", {"active": 1})

    await cluster.set_phase(launcher, "Succeeded")
    await has_event(cluster, "MPIJobSucceeded")
    for worker in workers:
        await cluster.gone(PODS, worker["metadata"]["name"])
    await replica_status(cluster, "Launcher", {"succeeded": 1})
    await replica_status(cluster, "Worker", {})
    assert (await cluster.job())["status"]["completionTime"]


async def test_a_launcher_that_waits_for_its_workers(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(launcherCreationPolicy="WaitForWorkersReady"))
    await has_event(cluster, "MPIJobCreated")
    await replica_statuses(cluster, {"Worker": {}})
    workers = await cluster.some_pods("worker", 2)
    for worker in workers:
        await cluster.set_phase(worker, "Running", ready=False)
    await replica_statuses(cluster, {"Worker": {"active": 2}})
    await cluster.settle()
    assert await cluster.get(JOBS, "pi-launcher") is None

    for worker in workers:
        await cluster.set_phase(worker, "Running", ready=True)
    await cluster.launcher_job()
    (launcher,) = await cluster.some_pods("launcher", 1)
    await cluster.set_phase(launcher, "Running")

    await has_event(cluster, "MPIJobRunning")


def directives(mark: str) -> dict[str, Any]:
    """What a queueing controller writes into a template while the job is suspended."""
    return {
        "metadata": {"labels": {"label": mark}, "annotations": {"annotation": mark}},
        "spec": {
            "nodeSelector": {"node": mark},
            "tolerations": [{"key": mark, "operator": "Exists", "effect": "NoSchedule"}],
            "schedulingGates": [{"name": f"gangline.dev/{mark}"}],
        },
    }


async def edited_launcher(cluster: Any, mark: str) -> None:
    """Wait until the launcher's Job is on its way with what was written into the template."""
    wanted = directives(mark)

    async def is_so() -> bool:
        job = await cluster.launcher_job()
        template = job["spec"]["template"]
        return (
            not job["spec"].get("suspend")
            and template["metadata"]["labels"].get("label") == mark
            and template["metadata"]["annotations"].get("annotation") == mark
            and all(template["spec"].get(key) == value for key, value in wanted["spec"].items())
        )

    await cluster.until(is_so)


async def test_a_job_that_is_suspended_edited_and_resumed_twice(cluster: Any, make_job: Build) -> None:
    async def edit(mark: str) -> None:
        replicas = {"Launcher": {"template": directives(mark)}}
        await cluster.edit({"spec": {"mpiReplicaSpecs": replicas}})

    async def suspend(value: bool) -> None:
        await cluster.edit({"spec": {"runPolicy": {"suspend": value}}})

    await cluster.submit(make_job(runPolicy={"suspend": True}))
    await has_event(cluster, "MPIJobCreated")
    await has_event(cluster, "MPIJobSuspended")
    assert await cluster.pods("worker") == []
    assert (await cluster.launcher_job())["spec"]["suspend"] is True
    await replica_statuses(cluster, {"Launcher": {}, "Worker": {}})
    assert "startTime" not in (await cluster.job())["status"]

    await edit("first")
    await suspend(False)
    await has_event(cluster, "MPIJobResumed")
    workers = await cluster.some_pods("worker", 2)
    await edited_launcher(cluster, "first")
    assert (await cluster.job())["status"]["startTime"]

    for worker in workers:
        await cluster.set_phase(worker, "Running")
    (launcher,) = await cluster.some_pods("launcher", 1)
    await cluster.set_phase(launcher, "Running")
    await has_event(cluster, "MPIJobRunning")

    await suspend(True)
    for worker in workers:
        await cluster.gone(PODS, worker["metadata"]["name"])
    await cluster.condition("Running", "False")
    await cluster.condition("Suspended")

    async def is_at_rest() -> bool:
        job = await cluster.launcher_job()
        return bool(job["spec"]["suspend"]) and not job["status"].get("active")

    await cluster.until(is_at_rest)
    await edit("second")
    await suspend(False)
    await cluster.condition("Suspended", "False")
    await edited_launcher(cluster, "second")
    await cluster.some_pods("worker", 2)


async def test_a_suspended_job_is_let_go_at_once_with_the_version_that_was_made(
    cluster: Any, make_job: Build
) -> None:
    made = await cluster.submit(make_job(runPolicy={"suspend": True}))
    await cluster.launcher_job()  # the operator has seen it
    assert await cluster.pods("worker") == []

    await cluster.client.update(MPIJOBS, {**made, "spec": {**made["spec"], "runPolicy": {"suspend": False}}})

    await cluster.some_pods("worker", 2)


async def test_whoever_reads_created_finds_all_that_the_job_has(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(workers=90))  # which take longer to make than the status
    await cluster.condition("Created")

    assert len(await cluster.pods("worker")) == 90
    for resource, name in (
        (SERVICES, "pi"),
        (SECRETS, "pi-ssh"),
        (CONFIG_MAPS, "pi-config"),
        (JOBS, "pi-launcher"),
    ):
        assert await cluster.get(resource, name), name


async def test_a_job_whose_launcher_fails_again(cluster: Any, make_job: Build) -> None:
    job = make_job(runPolicy={"backoffLimit": 1, "cleanPodPolicy": "Running"})
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    await cluster.submit(job)
    first = await cluster.run_to_launcher()
    await cluster.condition("Running")

    await cluster.fail(first, 1)
    await replica_status(cluster, "Launcher", {"failed": 1})
    conditions = (await cluster.job())["status"]["conditions"]
    assert "Failed" not in {condition["type"] for condition in conditions}

    async def another() -> Any:
        pods = await cluster.pods("launcher")
        return [pod for pod in pods if pod["metadata"]["uid"] != first["metadata"]["uid"]]

    (second,) = await cluster.until(another)
    await cluster.fail(second, 1)

    failed = await cluster.condition("Failed")
    await has_event(cluster, failed["reason"], "Warning")
    for index in range(2):
        await cluster.gone(PODS, f"pi-worker-{index}")
    await replica_status(cluster, "Launcher", {"failed": 2})
    assert (await cluster.job())["status"]["completionTime"]


async def test_a_job_of_another_controller(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    await cluster.submit(make_job("ours"))
    await cluster.condition("Created", name="ours")
    await cluster.exists(JOBS, "ours-launcher")
    await cluster.settle()

    assert "status" not in await cluster.job()
    assert await cluster.get(JOBS, "pi-launcher") is None
    assert await cluster.get(SERVICES, "pi") is None


async def test_an_api_server_that_restarts_in_the_middle(cluster: Any, make_job: Build, api: Any) -> None:
    """Watches break and versions are too old; nothing is lost and nothing is made twice."""
    if api.restart is None or api.embedded:
        pytest.skip("only a server that is ours, and not in this process, is restarted")
    await cluster.submit(make_job(runPolicy={"cleanPodPolicy": "Running"}))
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}

    await api.restart()

    async def is_submitted() -> bool:
        with contextlib.suppress(Unavailable):  # the first write on a connection that broke meanwhile
            await cluster.submit(make_job("later"))
        return await cluster.get(MPIJOBS, "later") is not None

    await cluster.until(is_submitted)
    await cluster.condition("Created", name="later")
    now = [pod for pod in await cluster.pods() if not pod["metadata"]["name"].startswith("later-")]
    assert {pod["metadata"]["uid"] for pod in now} == before
    await cluster.set_phase(launcher, "Succeeded")
    await cluster.condition("Succeeded")
    await cluster.gone(PODS, "pi-worker-0")
