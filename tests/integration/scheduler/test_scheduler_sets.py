"""JobSets and LeaderWorkerSets: their pods are gangs by what they are of. The controllers' part is played."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.resources import CRDS, JOB_SETS, LEADER_WORKER_SETS, PODS, Resource
from gangline.client.jobs.cluster_view import look
from gangline.kube.apply import apply

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
JOB = {"jobset.sigs.k8s.io/jobset-name": "train"}


@pytest.fixture
async def idle_cluster(idle_cluster: Any) -> Any:
    """A server that has both kinds before the scheduler looks for them."""
    for resource in (JOB_SETS, LEADER_WORKER_SETS):
        names = {"plural": resource.plural, "kind": resource.kind, "singular": resource.kind.lower()}
        version = {"name": resource.version, "served": True, "storage": True}
        definition = {
            "apiVersion": CRDS.api_version,
            "kind": CRDS.kind,
            "metadata": {"name": f"{resource.plural}.{resource.group}"},
            "spec": {
                "group": resource.group,
                "scope": "Namespaced",
                "names": names,
                "versions": [{**version, "schema": {"openAPIV3Schema": ANYTHING}}],
            },
        }
        await apply(idle_cluster.client, CRDS, definition)
    return idle_cluster


async def add(cluster: Any, resource: Resource, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
    await cluster.client.create(resource, body | {"metadata": {"name": name, "namespace": "default"}})


def job_set(**spec: Any) -> dict[str, Any]:
    pods = {"spec": {"schedulerName": "gangline-scheduler"}}
    jobs = [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": 2, "template": pods}}}
        for name in ("driver", "workers")
    ]
    return {"replicatedJobs": jobs, **spec}


async def add_pods(cluster: Any, job: str) -> list[str]:
    labels = {**JOB, "jobset.sigs.k8s.io/replicatedjob-name": job}
    names = [f"train-{job}-{index}" for index in range(2)]
    for name in names:
        await cluster.add_pod(name, cpu="1", labels=labels)
    return names


async def test_a_job_set_starts_whole_and_what_explains_it_knows_its_gang(cluster: Any) -> None:
    await cluster.add_node("a", cpu="3")
    await add(cluster, JOB_SETS, "train", job_set())
    names = [*await add_pods(cluster, "driver"), *await add_pods(cluster, "workers")]

    for name in names:
        assert "there is room for 3" in await cluster.until_unschedulable(name)
    seen = await look(cluster.client)
    assert {seen.gang_of(pod) for pod in seen.pods} == {"default/jobset/train"}

    await cluster.add_node("b", cpu="4")

    assert {await cluster.until_bound(name) for name in names} == {"b"}


async def test_jobs_in_order_do_not_wait_for_those_that_are_not_made_yet(cluster: Any) -> None:
    await cluster.add_node("a", cpu="3")
    await add(cluster, JOB_SETS, "train", job_set(startupPolicy={"startupPolicyOrder": "InOrder"}))

    assert {await cluster.until_bound(name) for name in await add_pods(cluster, "driver")} == {"a"}

    for name in await add_pods(cluster, "workers"):
        assert "there is room for 1" in await cluster.until_unschedulable(name)


async def test_a_set_that_comes_after_its_pods_makes_them_a_gang(cluster: Any) -> None:
    prefix = "leaderworkerset.sigs.k8s.io"
    group = {f"{prefix}/name": "serve", f"{prefix}/group-index": "0"}
    for index in range(3):
        labels = group | {f"{prefix}/worker-index": str(index)}
        await cluster.add_pod(f"serve-0-{index}", cpu="1", labels=labels)
    await cluster.until_unschedulable("serve-0-0")  # no node is there

    workers = {"spec": {"schedulerName": "gangline-scheduler"}}
    template = {"size": 3, "workerTemplate": workers}
    await add(cluster, LEADER_WORKER_SETS, "serve", {"leaderWorkerTemplate": template})

    async def is_gang() -> bool:
        pod = await cluster.client.get(PODS, "serve-0-0", "default")
        conditions = pod["status"].get("conditions") or []
        return any("leaderworkerset/serve/0" in one.get("message", "") for one in conditions)

    await cluster.until(is_gang)
    await cluster.add_node("a", cpu="3")
    assert {await cluster.until_bound(f"serve-0-{index}") for index in range(3)} == {"a"}
