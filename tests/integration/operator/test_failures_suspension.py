"""Jobs of every kind that are suspended half-way and resumed: nothing runs twice, nothing is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import PODS, SERVICES

from .jobs_of_kinds import ALL_KINDS, MPI, PYTORCH, TENSORFLOW, KindOfJob

each_kind = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)


async def start(cluster: Any, kind: KindOfJob, node: str) -> dict[str, dict[str, Any]]:
    """Have the last pod of a job run and the others start, on a node that takes its time to end pods."""
    await cluster.client.create(kind.resource, kind.manifest(cluster.namespace))
    pods = {name: await cluster.exists(PODS, f"train-{name}") for name in kind.pods}
    for pod in pods.values():
        await cluster.bind(pod, node)
    await cluster.set_phase(pods[kind.pods[-1]], "Running")
    return pods


async def suspend(cluster: Any, kind: KindOfJob, value: bool) -> None:
    patch = kind.suspension(value)
    await cluster.client.patch(kind.resource, "train", patch, cluster.namespace)


async def all_going(cluster: Any, pods: dict[str, dict[str, Any]]) -> bool:
    """Whether each pod was deleted; one that had ended goes at once."""
    found = [await cluster.get(PODS, pod["metadata"]["name"]) for pod in pods.values()]
    return all(pod is None or pod["metadata"].get("deletionTimestamp") for pod in found)


@each_kind
async def test_a_job_resumed_before_its_pods_are_gone_waits_for_them(
    cluster: Any, node: str, kind: KindOfJob
) -> None:
    before = await start(cluster, kind, node)

    await suspend(cluster, kind, True)
    await cluster.has(kind.resource, "Suspended")
    await cluster.until(lambda: all_going(cluster, before))
    await suspend(cluster, kind, False)
    await cluster.has(kind.resource, "Suspended", "False")
    await cluster.settle()

    for name, pod in before.items():
        kept = await cluster.exists(PODS, f"train-{name}")
        assert kept["metadata"]["uid"] == pod["metadata"]["uid"]
    for pod in before.values():
        await cluster.delete_pod(pod["metadata"]["name"], pod["metadata"]["uid"])
    now = {}
    for name, pod in before.items():
        now[name] = await cluster.another(PODS, f"train-{name}", pod["metadata"]["uid"])
        await cluster.exists(SERVICES, f"train-{name}" if kind in (PYTORCH, TENSORFLOW) else "train")
        await cluster.set_phase(now[name], "Running")
    await finish(cluster, kind, now)


@each_kind
async def test_a_suspended_job_holds_nothing_whatever_its_pods_did_and_ends_well_once_resumed(
    cluster: Any, node: str, kind: KindOfJob
) -> None:
    before = await start(cluster, kind, node)
    await cluster.set_phase(before[kind.pods[-1]], "Succeeded")

    await suspend(cluster, kind, True)
    await cluster.has(kind.resource, "Suspended")
    await cluster.until(lambda: all_going(cluster, before))
    for pod in before.values():  # as the node reports them, killed
        if await cluster.get(PODS, pod["metadata"]["name"]):
            await cluster.fail(pod, 137)
        await cluster.delete_pod(pod["metadata"]["name"], pod["metadata"]["uid"])
    for pod in before.values():
        await cluster.gone(PODS, pod["metadata"]["name"])
    await cluster.settle()
    job = await cluster.client.get(kind.resource, "train", cluster.namespace)
    assert not {"Failed", kind.done} & {one["type"] for one in job["status"]["conditions"]}
    assert not job["status"].get("restarts")
    active = [one.get("active", 0) for one in job["status"].get("replicaStatuses", {}).values()]
    assert not any(active)

    await suspend(cluster, kind, False)
    now = {}
    for name in kind.pods:
        now[name] = await cluster.exists(PODS, f"train-{name}")
        await cluster.set_phase(now[name], "Running")
    await finish(cluster, kind, now)


async def finish(cluster: Any, kind: KindOfJob, pods: dict[str, dict[str, Any]]) -> None:
    """End every pod well; the job has done so too, once."""
    if kind is MPI:
        (launcher,) = await cluster.some_pods("launcher", 1)
        await cluster.set_phase(launcher, "Running")
        await cluster.has(kind.resource, "Running")
        await cluster.set_phase(launcher, "Succeeded")
    else:
        for pod in pods.values():
            await cluster.set_phase(pod, "Succeeded")
    await cluster.has(kind.resource, kind.done)
    found = (await cluster.client.list(PODS, cluster.namespace)).items
    assert len(found) == len(pods) + (kind is MPI)
