"""Nodes that are lost with pods of training jobs: what waits, what is said, and how it goes on.

The same for MPIJobs and their gangs is in ``tests/integration/gangs``.
"""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import NODES, PODS

from .jobs_of_kinds import TRAIN, TRAINING_KINDS

GIVE_UP_S = 120.0
"""kube-controller-manager waits 40 s for a node to come again, and looks every 20 s."""


@pytest.fixture(autouse=True)
def ends_are_late_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.workloads.unconfirmed_end.END_LATE_S", 0.5)


async def place_jobs(cluster: Any, node: str) -> dict[str, dict[str, Any]]:
    """Have a job of every kind run, the last pod of each on the node; return those by name."""
    lost = {}
    for kind in TRAINING_KINDS:
        job = kind.name.lower()
        policy = "" if kind is TRAIN else "OnFailure"
        await cluster.client.create(kind.resource, kind.manifest(cluster.namespace, job, policy))
        for name in kind.pods:
            pod = await cluster.exists(PODS, f"{job}-{name}")
            if name == kind.pods[-1]:
                lost[pod["metadata"]["name"]] = pod
                await cluster.bind(pod, node)
            await cluster.set_phase(pod, "Running")
    await cluster.settle()
    return lost


async def check_nothing_counted(cluster: Any) -> None:
    await cluster.settle()
    for kind in TRAINING_KINDS:
        job = await cluster.client.get(kind.resource, kind.name.lower(), cluster.namespace)
        assert "restarts" not in job["status"], kind.name
        assert "Failed" not in {one["type"] for one in job["status"].get("conditions", [])}


async def test_pods_of_a_node_that_is_deleted_are_made_again(cluster: Any, node: str) -> None:
    lost = await place_jobs(cluster, node)

    await cluster.client.delete(NODES, node)

    for name, pod in lost.items():
        again = await cluster.another(PODS, name, pod["metadata"]["uid"], GIVE_UP_S)
        assert not again["spec"].get("nodeName")
        await cluster.set_phase(again, "Running")
    await check_nothing_counted(cluster)


@pytest.mark.parametrize("way_on", ["the node is out of service", "the node is back"])
async def test_a_silent_node_keeps_its_pods_and_the_job_says_so_until_it_is_given_up(
    cluster: Any, node: str, way_on: str
) -> None:
    lost = await place_jobs(cluster, node)
    await cluster.set_node_ready(node, "Unknown")

    # As the taint manager does when the five minutes are over that pods have.
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    for name in lost:
        status = {"status": {"conditions": [disrupted]}}
        await cluster.client.patch(
            PODS, name, status, cluster.namespace, kind="strategic", subresource="status"
        )
        await cluster.client.delete(PODS, name, cluster.namespace)

    for kind in TRAINING_KINDS:
        job, pod = kind.name.lower(), f"{kind.name.lower()}-{kind.pods[-1]}"
        told = f"pod {pod} was deleted, and node {node} does not confirm its end"
        if kind is not TRAIN:
            waiting = await cluster.has(kind.resource, "Waiting", name=job)
            assert waiting["reason"] == "Terminating"
            assert waiting["message"].startswith(told)
            assert f"`kubectl delete node {node}`" in waiting["message"]
        await cluster.until(lambda told=told: is_told(cluster, told))
    for name, pod in lost.items():
        kept = await cluster.exists(PODS, name)
        assert kept["metadata"]["uid"] == pod["metadata"]["uid"]

    if way_on == "the node is out of service":
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        await cluster.client.patch(NODES, node, {"spec": {"taints": [taint]}})
    else:
        for name, pod in lost.items():
            await cluster.delete_pod(name, pod["metadata"]["uid"])

    for name, pod in lost.items():
        again = await cluster.another(PODS, name, pod["metadata"]["uid"], GIVE_UP_S)
        await cluster.set_phase(again, "Running")
    for kind in TRAINING_KINDS:
        if kind is not TRAIN:
            await cluster.has(kind.resource, "Waiting", "False", kind.name.lower())
    await check_nothing_counted(cluster)


async def is_told(cluster: Any, text: str) -> bool:
    return any(event["message"].startswith(text) for event in await cluster.events("Terminating"))
