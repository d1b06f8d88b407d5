"""Jobs whose workers come and go, against API servers: who tells programs of them, and what scales them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.api.resources import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, MPIJOBS, PODS, PYTORCHJOBS

Build = Callable[..., dict[str, Any]]


async def test_an_elastic_mpijob_tells_each_worker_that_comes_or_goes(cluster: Any, make_job: Build) -> None:
    job = make_job()
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["command"] = ["horovodrun", "--host-discovery-script", "/etc/mpi/discover_hosts.sh"]
    await cluster.submit(job)

    async def scale(replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        await cluster.client.patch(MPIJOBS, "pi", patch, cluster.namespace, subresource="scale")

    async def run(index: int) -> dict[str, Any]:
        pod: dict[str, Any] = await cluster.exists(PODS, f"pi-worker-{index}")
        await cluster.set_phase(pod, "Running")
        return pod

    async def told(*workers: int) -> None:
        hosts = [f"echo pi-worker-{index}.pi.{cluster.namespace}.svc\n" for index in workers]

        async def is_told() -> bool:
            found = await cluster.exists(CONFIG_MAPS, "pi-config")
            return bool(found["data"]["discover_hosts.sh"] == "#!/bin/sh\n" + "".join(hosts))

        await cluster.until(is_told)

    await run(0)
    await told(0)
    lost = await run(1)
    await told(0, 1)
    await scale(3)
    await run(2)
    await told(0, 1, 2)
    await cluster.client.delete(PODS, "pi-worker-1", cluster.namespace, grace_period_s=0)
    await told(0, 2)

    async def is_made_again() -> bool:
        pod = await cluster.get(PODS, "pi-worker-1")
        return bool(pod and pod["metadata"]["uid"] != lost["metadata"]["uid"])

    await cluster.until(is_made_again)
    await run(1)
    await told(0, 1, 2)
    await scale(1)
    await told(0)
    conditions = (await cluster.job())["status"]["conditions"]
    assert "Failed" not in {one["type"] for one in conditions}


async def test_the_metrics_of_a_pytorchjob_make_an_autoscaler_that_goes_with_it(cluster: Any) -> None:
    target = {"type": "AverageValue", "averageValue": "0.5"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    template = {"spec": {"containers": [{"name": "pytorch", "image": "image"}]}}
    job = {
        "apiVersion": PYTORCHJOBS.api_version,
        "kind": PYTORCHJOBS.kind,
        "metadata": {"name": "train", "namespace": cluster.namespace},
        "spec": {
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}},
        },
    }
    await cluster.client.create(PYTORCHJOBS, job)

    made = await cluster.exists(HORIZONTAL_POD_AUTOSCALERS, "train")

    assert made["spec"]["scaleTargetRef"] == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "train",
    }
    edit = {"spec": {"elasticPolicy": {"maxReplicas": 5}}}
    await cluster.client.patch(PYTORCHJOBS, "train", edit, cluster.namespace)

    async def has_five() -> bool:
        found = await cluster.exists(HORIZONTAL_POD_AUTOSCALERS, "train")
        return bool(found["spec"]["maxReplicas"] == 5)

    await cluster.until(has_five)
    version = (await cluster.exists(HORIZONTAL_POD_AUTOSCALERS, "train"))["metadata"]["resourceVersion"]
    await cluster.settle()
    await cluster.client.patch(PYTORCHJOBS, "train", {"metadata": {"labels": {"a": "b"}}}, cluster.namespace)
    await cluster.settle()
    found = await cluster.exists(HORIZONTAL_POD_AUTOSCALERS, "train")
    assert found["metadata"]["resourceVersion"] == version, "it was written again"
    await cluster.client.patch(
        PYTORCHJOBS, "train", {"spec": {"runPolicy": {"suspend": True}}}, cluster.namespace
    )
    await cluster.gone(HORIZONTAL_POD_AUTOSCALERS, "train")
    await cluster.client.patch(
        PYTORCHJOBS, "train", {"spec": {"runPolicy": {"suspend": False}}}, cluster.namespace
    )
    await cluster.exists(HORIZONTAL_POD_AUTOSCALERS, "train")
    await cluster.client.delete(PYTORCHJOBS, "train", cluster.namespace)
    await cluster.gone(HORIZONTAL_POD_AUTOSCALERS, "train")
