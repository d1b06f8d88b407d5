"""What goes wrong: workers and launchers that fail, strangers' objects, bad specs, a restarted operator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gangline.api.resources import CONFIG_MAPS, JOBS, PODS, RESOURCE_QUOTAS, SERVICES
from gangline.jobs import launcher_replacement
from gangline.kube.client import Client
from gangline.operator.operator import Operator

Build = Callable[..., dict[str, Any]]


async def test_a_worker_that_dies_ends_the_job_and_its_launcher(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"cleanPodPolicy": "Running"}))
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")

    await cluster.fail(await cluster.exists(PODS, "pi-worker-1"), 137)

    failed = await cluster.condition("Failed")
    assert failed["reason"] == "MPIJobWorkerFailed"
    assert failed["message"] == (
        "worker pod pi-worker-1 failed: container main was killed by signal 9 (SIGKILL)"
    )
    await cluster.gone(PODS, launcher["metadata"]["name"])
    await cluster.gone(PODS, "pi-worker-0")
    assert await cluster.get(PODS, "pi-worker-1") is not None
    await cluster.settle()
    assert (await cluster.condition("Failed"))["reason"] == "MPIJobWorkerFailed"
    (event,) = await cluster.events("MPIJobWorkerFailed")
    assert event["type"] == "Warning"


async def test_a_launcher_that_fails_for_good_fails_the_job(cluster: Any, make_job: Build) -> None:
    job = make_job(runPolicy={"backoffLimit": 0})
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    await cluster.submit(job)
    launcher = await cluster.run_to_launcher()

    await cluster.fail(launcher, 3)

    failed = await cluster.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert f"pod {launcher['metadata']['name']}: container main exited with code 3" in failed["message"]
    assert (await cluster.job())["status"]["replicaStatuses"]["Launcher"] == {"failed": 1}
    assert cluster.operator.statistics().jobs_failed == 1


async def test_a_strangers_object_is_left_alone_and_said_once(
    cluster: Any, make_job: Build, client: Client
) -> None:
    stranger = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "pi-config", "namespace": cluster.namespace},
        "data": {"mine": "yes"},
    }
    await client.create(CONFIG_MAPS, stranger)

    await cluster.submit(make_job())

    async def said() -> Any:
        return await cluster.events("ErrResourceExists")

    (event,) = await cluster.until(said)
    assert event["message"] == (
        'Resource "pi-config" of Kind "ConfigMap" already exists and is not managed by MPIJob'
    )
    found = await cluster.exists(CONFIG_MAPS, "pi-config")
    assert found["data"] == {"mine": "yes"}


async def test_an_object_of_ours_that_lost_its_labels_gets_them_back(
    cluster: Any, make_job: Build, client: Client
) -> None:
    await cluster.submit(make_job())
    service = await cluster.exists(SERVICES, "pi")
    labels, selector = service["metadata"]["labels"], service["spec"]["selector"]
    stripped = {
        "metadata": {"labels": {**dict.fromkeys(labels), "mine": "yes"}},
        "spec": {"selector": {**dict.fromkeys(selector), "x": "y"}},
    }

    await client.patch(SERVICES, "pi", stripped, cluster.namespace)

    async def is_mended() -> bool:
        found = await cluster.exists(SERVICES, "pi")
        has_labels = found["metadata"]["labels"] == {**labels, "mine": "yes"}
        return has_labels and bool(found["spec"]["selector"] == selector)

    await cluster.until(is_mended)


async def test_a_job_says_which_quota_refuses_its_pods_and_goes_on_when_it_lets_them(
    cluster: Any, make_job: Build, client: Client
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": cluster.namespace},
        "spec": {"hard": {"pods": "1"}},
    }
    await client.create(RESOURCE_QUOTAS, quota)

    async def is_counted() -> bool:
        found = await client.get(RESOURCE_QUOTAS, "team", cluster.namespace)
        return bool((found.get("status") or {}).get("used"))

    await cluster.until(is_counted)
    await cluster.submit(make_job())

    waiting = await cluster.condition("Waiting")
    assert waiting["reason"] == "PodsNotMade"
    assert "is forbidden: exceeded quota: team, requested: pods=1, used: pods=1" in waiting["message"]
    assert (await cluster.job())["status"]["conditions"][-1]["type"] == "Created"

    await client.delete(RESOURCE_QUOTAS, "team", cluster.namespace)
    await cluster.run_to_launcher()
    await cluster.condition("Running")
    await cluster.condition("Waiting", "False")


async def test_a_job_says_for_what_a_pod_of_its_waits(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job())
    worker = (await cluster.some_pods("worker", 2))[0]
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    await cluster.set_phase(worker, "Pending", ready=False, conditions=[placed])

    waiting = await cluster.condition("Waiting")
    assert waiting["reason"] == "Unschedulable"
    assert waiting["message"] == f"pod {worker['metadata']['name']} fits on no node: {message}"


async def test_a_job_of_another_manager_is_not_touched(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    await cluster.submit(make_job("other"))
    await cluster.condition("Created", name="other")
    await cluster.settle()

    assert "status" not in await cluster.job()
    assert await cluster.get(SERVICES, "pi") is None


async def test_an_invalid_job_fails_with_its_errors_and_starts_once_mended(
    cluster: Any, make_job: Build
) -> None:
    job = make_job()
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0].pop("image")
    await cluster.submit(job)

    failed = await cluster.condition("Failed")
    assert failed["reason"] == "ValidationError"
    assert "spec.mpiReplicaSpecs[Launcher].template.spec.containers[0].image: Required" in failed["message"]
    assert await cluster.pods() == []

    template = {"spec": {"containers": [{"name": "main", "image": "gangline/base"}]}}
    await cluster.edit({"spec": {"mpiReplicaSpecs": {"Launcher": {"template": template}}}})

    await cluster.run_to_launcher()
    await cluster.condition("Running")


async def test_a_pod_that_the_server_refuses_fails_the_job(cluster: Any, make_job: Build) -> None:
    job = make_job()
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"] = {"labels": {"bad key!": "x"}}
    await cluster.submit(job)

    failed = await cluster.condition("Failed")

    assert failed["reason"] == "MPIJobFailed"
    assert failed["message"].startswith("worker pod created failed: ")


async def test_a_launcher_that_its_node_refused_is_placed_anew(
    cluster: Any, make_job: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_replacement, "first_wait_s", 0.0)
    job = make_job(runPolicy={"backoffLimit": 0})
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    await cluster.submit(job)
    workers = {pod["metadata"]["uid"] for pod in await cluster.some_pods("worker", 2)}
    (first,) = await cluster.some_pods("launcher", 1)
    await cluster.set_phase(first, "Failed", reason="OutOfcpu", message="Pod was rejected")

    async def another() -> Any:
        pods = await cluster.pods("launcher")
        return pods and all(pod["metadata"]["uid"] != first["metadata"]["uid"] for pod in pods)

    await cluster.until(another)
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")
    assert {pod["metadata"]["uid"] for pod in await cluster.pods("worker")} == workers
    (event,) = await cluster.events("MPIJobLauncherRefused")
    assert "OutOfcpu: Pod was rejected" in event["message"]

    await cluster.fail(launcher, 1)
    failed = await cluster.condition("Failed")
    assert failed["reason"] == "BackoffLimitExceeded"


async def test_an_operator_that_was_away_finishes_what_it_missed(
    cluster: Any, make_job: Build, client: Client
) -> None:
    await cluster.submit(make_job(runPolicy={"cleanPodPolicy": "All"}))
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")
    await cluster.settle()
    versions = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await cluster.pods()}
    second = Operator(client, namespace=cluster.namespace)
    task = asyncio.create_task(second.run())

    async def has_looked() -> bool:
        return second.statistics().reconcile.count > 0

    await cluster.until(has_looked)
    seen = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await cluster.pods()}
    await cluster.set_phase(launcher, "Succeeded")
    await cluster.condition("Succeeded")
    await cluster.gone(PODS, "pi-worker-0")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert seen == versions
    assert await cluster.get(JOBS, "pi-launcher") is not None
