"""A pod of a training job ends before its time: what is made again, what counts, and what ends the job.

What becomes of MPIJobs then is in ``test_operator_troubles.py`` and in the tests of their rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gangline.api.resources import PODS

from .jobs_of_kinds import PYTORCH, TENSORFLOW, TRAIN, KindOfJob

End = Callable[[Any, dict[str, Any]], Awaitable[None]]


async def is_killed(cluster: Any, pod: dict[str, Any]) -> None:
    await cluster.fail(pod, 137)


async def is_evicted(cluster: Any, pod: dict[str, Any]) -> None:
    """Go as a drain has it go."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await cluster.client.create_subresource(PODS, name, "eviction", body, cluster.namespace)


async def is_evicted_by_its_node(cluster: Any, pod: dict[str, Any]) -> None:
    """End by a node that runs out of memory."""
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    message = "The node was low on resource: memory."
    await cluster.set_phase(pod, "Failed", reason="Evicted", message=message, conditions=[disrupted])


async def is_lost(cluster: Any, pod: dict[str, Any]) -> None:
    """End as the garbage collector of pods has it end whose node is gone."""
    lost = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    await cluster.set_phase(pod, "Failed", reason="NodeLost", conditions=[lost])
    await is_deleted(cluster, pod)


async def is_deleted(cluster: Any, pod: dict[str, Any]) -> None:
    meta = pod["metadata"]
    await cluster.delete_pod(meta["name"], meta["uid"])


ENDS: dict[End, int] = {is_killed: 1, is_evicted: 0, is_evicted_by_its_node: 1, is_lost: 0, is_deleted: 0}
"""How a pod ends, and whether that counts toward ``backoffLimit``."""


VICTIMS = [(PYTORCH, "master-0 worker-1"), (TENSORFLOW, "chief-0 ps-0 worker-1"), (TRAIN, "node-0-0")]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
@pytest.mark.parametrize(("kind", "victims"), VICTIMS)
async def test_a_pod_of_each_role_that_ends_is_made_again_and_the_job_ends_well(
    cluster: Any, kind: KindOfJob, victims: str, end: End
) -> None:
    policy, lost = ("" if kind is TRAIN else "ExitCode"), victims.split()
    await cluster.client.create(kind.resource, kind.manifest(cluster.namespace, policy=policy))
    before = await run_all(cluster, kind)

    for victim in lost:
        await end(cluster, before[victim])

    for victim in lost:
        await cluster.another(PODS, f"train-{victim}", uid(before[victim]))
    now = await run_all(cluster, kind)
    assert [name for name in kind.pods if uid(now[name]) != uid(before[name])] == lost
    job = await cluster.client.get(kind.resource, "train", cluster.namespace)
    assert job["status"].get("restarts", 0) == ENDS[end] * len(lost)
    assert "Failed" not in {one["type"] for one in job["status"].get("conditions", [])}
    for pod in now.values():
        await cluster.set_phase(pod, "Succeeded")
    await cluster.has(kind.resource, kind.done)


FATAL = [
    (TENSORFLOW, "Never", "ps-0", "TFJob {ns}/train has failed because 1 PS replica(s) failed."),
    (TENSORFLOW, "Never", "chief-0", "TFJob {ns}/train has failed because 1 Chief replica(s) failed."),
    (TENSORFLOW, "Never", "worker-1", "TFJob {ns}/train has failed because 1 Worker replica(s) failed."),
    (TENSORFLOW, "ExitCode", "ps-0", 'job "train" is failing because "PS" replica(s) failed.'),
    (PYTORCH, "Never", "master-0", "PyTorchJob train is failed because 1 Master replica(s) failed."),
    (PYTORCH, "Never", "worker-1", "PyTorchJob train is failed because 1 Worker replica(s) failed."),
    (PYTORCH, "ExitCode", "master-0", 'job "train" is failing because "Master" replica(s) failed.'),
    (TRAIN, "Never", "node-0-1", "jobset failed due to one or more job failures: 1 pods of node failed"),
]


@pytest.mark.parametrize(("kind", "policy", "victim", "message"), FATAL)
async def test_a_program_that_fails_for_good_ends_the_job_and_nothing_is_made_again(
    cluster: Any, kind: KindOfJob, policy: str, victim: str, message: str
) -> None:
    await cluster.client.create(kind.resource, kind.manifest(cluster.namespace, policy=policy))
    pods = await run_all(cluster, kind)

    await cluster.fail(pods[victim], 1)

    failed = await cluster.has(kind.resource, "Failed")
    assert failed["message"] == message.format(ns=cluster.namespace)
    await cluster.settle()
    job = await cluster.client.get(kind.resource, "train", cluster.namespace)
    assert job["status"]["completionTime"]
    assert not job["status"].get("restarts")
    found = await cluster.get(PODS, f"train-{victim}")
    assert found is not None and uid(found) == uid(pods[victim])


async def run_all(cluster: Any, kind: KindOfJob) -> dict[str, dict[str, Any]]:
    """Let every pod of the job run and return them by name, as soon as the job has seen them all."""
    pods = {}
    for name in kind.pods:
        pods[name] = await cluster.exists(PODS, f"train-{name}")
        if pods[name]["status"].get("phase") != "Running":
            await cluster.set_phase(pods[name], "Running")
    await cluster.settle()
    return pods


def uid(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["uid"])
