"""MPIJobs from creation to their end, on the embedded API server and Job controller; tests play nodes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.resources import CONFIG_MAPS, JOBS, MPIJOBS, PODS, SECRETS, SERVICES
from gangline.kube.client import Client
from gangline.kube.errors import Invalid

Build = Callable[..., dict[str, Any]]


async def test_a_job_runs_to_success_and_its_workers_are_cleaned(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"cleanPodPolicy": "Running"}))
    launcher = await cluster.run_to_launcher()

    await cluster.condition("Running")
    job = await cluster.job()
    assert job["status"]["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {"active": 2}}
    assert launcher["spec"]["hostname"] == "pi-launcher"

    await cluster.set_phase(launcher, "Succeeded")

    await cluster.condition("Succeeded")
    for index in range(2):
        await cluster.gone(PODS, f"pi-worker-{index}")
    job = await cluster.job()
    assert job["status"]["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}
    assert job["status"]["completionTime"]
    for reason in ("MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"):
        (event,) = await cluster.events(reason)
        assert (event["type"], event["count"]) == ("Normal", 1)
    counts = cluster.operator.statistics()
    assert (counts.jobs_created, counts.jobs_successful, counts.jobs_failed) == (1, 1, 0)
    assert counts.launchers == ((cluster.namespace, "pi-launcher"),)


async def test_children_belong_to_the_job_and_the_service_selects_its_pods(
    cluster: Any, make_job: Build
) -> None:
    await cluster.submit(make_job())
    uid = (await cluster.job())["metadata"]["uid"]

    names = [(SERVICES, "pi"), (CONFIG_MAPS, "pi-config"), (SECRETS, "pi-ssh"), (JOBS, "pi-launcher")]
    names += [(PODS, "pi-worker-0"), (PODS, "pi-worker-1")]
    children = {name: await cluster.exists(resource, name) for resource, name in names}
    for child in children.values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (uid, True, True)
    selector = children["pi"]["spec"]["selector"].items()
    assert selector <= children["pi-worker-0"]["metadata"]["labels"].items()
    assert selector <= children["pi-launcher"]["spec"]["template"]["metadata"]["labels"].items()
    assert children["pi"]["spec"]["clusterIP"] == "None"


async def test_the_secret_holds_a_key_pair_that_ssh_keygen_accepts(
    cluster: Any, make_job: Build, tmp_path: Path
) -> None:
    await cluster.submit(make_job())
    secret = await cluster.exists(SECRETS, "pi-ssh")

    assert secret["type"] == "kubernetes.io/ssh-auth"
    private = base64.b64decode(secret["data"]["ssh-privatekey"])
    public = base64.b64decode(secret["data"]["ssh-publickey"])
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert public.startswith(b"ecdsa-sha2-nistp521 ")
    assert public.endswith(b"\n")
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(private, None)
    encoded = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    assert encoded == public.strip()


async def test_a_job_that_is_done_is_left_in_peace(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job())
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")
    await cluster.set_phase(launcher, "Succeeded")
    await cluster.condition("Succeeded")
    await cluster.settle()
    before = await cluster.job()

    await cluster.edit({"metadata": {"labels": {"touched": "yes"}}})
    await cluster.settle()

    after = await cluster.job()
    assert after["status"] == before["status"]
    assert len(await cluster.pods("worker")) == 2


async def test_deleting_the_job_deletes_everything(cluster: Any, make_job: Build, client: Client) -> None:
    await cluster.submit(make_job())
    await cluster.some_pods("launcher", 1)

    await client.delete(MPIJOBS, "pi", cluster.namespace)

    for resource, name in [
        (SERVICES, "pi"),
        (CONFIG_MAPS, "pi-config"),
        (SECRETS, "pi-ssh"),
        (JOBS, "pi-launcher"),
        (PODS, "pi-worker-0"),
    ]:
        await cluster.gone(resource, name)


async def test_a_job_can_be_created_again_at_once(cluster: Any, make_job: Build, client: Client) -> None:
    for _ in range(3):
        await cluster.submit(make_job())
        await cluster.run_to_launcher()
        await cluster.condition("Running")
        await client.delete(MPIJOBS, "pi", cluster.namespace)

    await cluster.submit(make_job())
    await cluster.run_to_launcher()
    await cluster.condition("Running")

    assert await cluster.events("ErrResourceExists") == []


async def test_workers_that_are_deleted_come_back(cluster: Any, make_job: Build, client: Client) -> None:
    await cluster.submit(make_job())
    await cluster.run_to_launcher()
    old = await cluster.exists(PODS, "pi-worker-1")

    await client.delete(PODS, "pi-worker-1", cluster.namespace, grace_period_s=0)

    async def is_new() -> bool:
        pod = await cluster.get(PODS, "pi-worker-1")
        return pod is not None and pod["metadata"]["uid"] != old["metadata"]["uid"]

    await cluster.until(is_new)


async def test_the_launcher_waits_for_ready_workers_if_asked(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(launcherCreationPolicy="WaitForWorkersReady"))
    workers = await cluster.some_pods("worker", 2)
    for pod in workers:
        await cluster.set_phase(pod, "Running", ready=False)
    await cluster.settle()
    assert await cluster.get(JOBS, "pi-launcher") is None

    for pod in workers:
        await cluster.set_phase(pod, "Running")

    await cluster.exists(JOBS, "pi-launcher")


async def test_a_job_is_suspended_and_resumed_with_its_edits(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"suspend": True}))
    await cluster.condition("Suspended")
    job = await cluster.job()
    assert "startTime" not in job["status"]
    assert (await cluster.launcher_job())["spec"]["suspend"] is True
    assert await cluster.pods() == []

    template = {"metadata": {"labels": {"l": "1"}}, "spec": {"nodeSelector": {"n": "1"}}}
    edit = {"mpiReplicaSpecs": {"Launcher": {"template": template}}, "runPolicy": {"suspend": False}}
    await cluster.edit({"spec": edit})

    await cluster.condition("Suspended", "False")
    launcher = await cluster.run_to_launcher()
    await cluster.condition("Running")
    assert launcher["metadata"]["labels"]["l"] == "1"
    assert launcher["spec"]["nodeSelector"] == {"n": "1"}
    assert (await cluster.job())["status"]["startTime"]

    await cluster.edit({"spec": {"runPolicy": {"suspend": True}}})
    await cluster.condition("Running", "False")
    for index in range(2):
        await cluster.gone(PODS, f"pi-worker-{index}")
    await cluster.gone(PODS, launcher["metadata"]["name"])

    await cluster.edit({"spec": {"runPolicy": {"suspend": False}}})
    await cluster.run_to_launcher()
    await cluster.condition("Running")


async def test_scaling_through_the_subresource(cluster: Any, make_job: Build, client: Client) -> None:
    await cluster.submit(make_job())
    await cluster.some_pods("worker", 2)

    await client.patch(MPIJOBS, "pi", {"spec": {"replicas": 3}}, cluster.namespace, subresource="scale")
    await cluster.exists(PODS, "pi-worker-2")
    await client.patch(MPIJOBS, "pi", {"spec": {"replicas": 1}}, cluster.namespace, subresource="scale")
    await cluster.gone(PODS, "pi-worker-1")

    await cluster.gone(PODS, "pi-worker-2")
    await cluster.settle()
    config_map = await cluster.exists(CONFIG_MAPS, "pi-config")
    assert config_map["data"]["hostfile"] == f"pi-worker-0.pi.{cluster.namespace}.svc slots=1\n"


async def test_kubectl_prints_state_and_workers(cluster: Any, make_job: Build, client: Client) -> None:
    await cluster.submit(make_job())
    await cluster.run_to_launcher()
    await cluster.condition("Running")

    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = await client.request("GET", MPIJOBS.path(cluster.namespace), headers=accept)

    columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    (row,) = table["rows"]
    assert columns == ["Name", "State", "Running", "Workers", "Age"]
    assert row["cells"][:4] == ["pi", "Running", 2, 2]


async def test_many_jobs_at_once_all_succeed(cluster: Any, make_job: Build) -> None:
    count = 20
    for index in range(count):
        await cluster.submit(make_job(f"job-{index}", 1))
    for pod in await cluster.some_pods("worker", count):
        await cluster.set_phase(pod, "Running")
    for pod in await cluster.some_pods("launcher", count):
        await cluster.set_phase(pod, "Succeeded")
    for index in range(count):
        await cluster.condition("Succeeded", name=f"job-{index}")

    statistics = cluster.operator.statistics()
    assert statistics.jobs_successful == count
    assert statistics.retries == 0
    assert statistics.reconcile.count >= count
    assert statistics.decide.p99_ms >= statistics.decide.p50_ms > 0


async def test_the_manager_of_a_job_cannot_change(cluster: Any, make_job: Build) -> None:
    await cluster.submit(make_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))

    with pytest.raises(Invalid) as refused:
        await cluster.edit({"spec": {"runPolicy": {"managedBy": None}}})

    assert "spec: Invalid value: runPolicy.managedBy is immutable" in str(refused.value.message)
    await cluster.edit({"spec": {"slotsPerWorker": 2}})


async def test_the_launcher_of_a_job_that_waits_takes_an_edit_of_its_command(
    cluster: Any, make_job: Any
) -> None:
    await cluster.submit(make_job())
    before = await cluster.exists(JOBS, "pi-launcher")

    job = await cluster.job()
    container = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    changed = [{**container, "command": ["mpirun", "hostname"]}]
    launcher = {"Launcher": {"template": {"spec": {"containers": changed}}}}
    await cluster.edit({"spec": {"mpiReplicaSpecs": launcher}})

    after = await cluster.another(JOBS, "pi-launcher", before["metadata"]["uid"])
    assert after["spec"]["template"]["spec"]["containers"][0]["command"] == ["mpirun", "hostname"]

    async def pods() -> list[dict[str, Any]]:
        found = (await cluster.client.list(PODS, cluster.namespace)).items
        return [pod for pod in found if pod["metadata"]["name"].startswith("pi-launcher")]

    async def is_replaced() -> bool:
        return [pod["spec"]["containers"][0]["command"] for pod in await pods()] == [["mpirun", "hostname"]]

    await cluster.until(is_replaced)
