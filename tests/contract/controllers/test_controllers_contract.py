"""What controllers do with pods: each case runs against ours and against upstream's controller manager."""

import uuid
from typing import Any

import pytest

from gangline.api.resources import DAEMON_SETS, DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


def template(image: str = "one", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": image}]
    spec = {
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
        "containers": containers,
        **spec,
    }
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


def selecting(**spec: Any) -> dict[str, Any]:
    return {"selector": {"matchLabels": {"app": "x"}}, "template": template(), **spec}


def job_template() -> dict[str, Any]:
    return template(restartPolicy="Never")


def image_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def true_conditions(status: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["reason"] for c in status.get("conditions", []) if c["status"] == "True"}


async def test_a_deployment_rolls_within_its_bounds_and_back(workloads: Any) -> None:
    bounds = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await workloads.create(DEPLOYMENTS, "web", spec=selecting(replicas=2, strategy=bounds))
    for pod in await workloads.pods(2):
        await workloads.is_ready(pod)

    async def is_rolled_out(image: str) -> bool:
        """Make the new pods ready, one more than wanted at most; True when only they are left."""
        pods = await workloads.list(PODS)
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert len(living) <= 3
        for pod in living:
            if image_of(pod) == image and "conditions" not in pod["status"]:
                assert len(living) == 3  # the others are there until it is ready
                await workloads.is_ready(pod)
        status = (await workloads.get(DEPLOYMENTS, "web"))["status"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
        return counts == [2, 2, 2] and {image_of(pod) for pod in living} == {image}

    async def is_available() -> bool:
        status = (await workloads.get(DEPLOYMENTS, "web")).get("status", {})
        return status.get("availableReplicas") == 2

    await workloads.until(is_available)
    for image in ("two", "one"):
        await workloads.patch(DEPLOYMENTS, "web", spec={"template": template(image)})
        await workloads.until(lambda image=image: is_rolled_out(image))

    sets = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one
        for one in await workloads.list(REPLICA_SETS)
    }
    revision = "deployment.kubernetes.io/revision"
    assert {image: one["metadata"]["annotations"][revision] for image, one in sets.items()} == {
        "one": "3",
        "two": "2",
    }
    assert {image: one["spec"]["replicas"] for image, one in sets.items()} == {"one": 2, "two": 0}


async def test_a_stateful_set_grows_and_shrinks_in_order(workloads: Any) -> None:
    await workloads.create(STATEFUL_SETS, "db", spec=selecting(replicas=2, serviceName="db"))
    [first] = await workloads.pods(1)
    assert (first["metadata"]["name"], first["spec"]["hostname"]) == ("db-0", "db-0")
    await workloads.is_ready(first)
    _, second = await workloads.pods(2)
    assert second["metadata"]["name"] == "db-1"
    assert second["spec"]["subdomain"] == "db"
    await workloads.is_ready(second)

    async def is_current() -> bool:
        status = (await workloads.get(STATEFUL_SETS, "db"))["status"]
        return bool(
            status.get("readyReplicas") == 2 and status["currentRevision"] == status["updateRevision"]
        )

    await workloads.until(is_current)
    await workloads.patch(STATEFUL_SETS, "db", spec={"replicas": 1})
    [left] = await workloads.pods(1)
    assert left["metadata"]["uid"] == first["metadata"]["uid"]


async def test_indexes_of_a_job_fail_for_themselves(workloads: Any) -> None:
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0}
    await workloads.create(JOBS, "shards", spec={**spec, "template": job_template()})
    for pod in await workloads.pods(3):
        annotations = pod["metadata"]["annotations"]
        assert annotations[FAILURES] == "0"
        await workloads.ends(pod, "Failed" if annotations[INDEX] == "1" else "Succeeded")

    async def failed() -> Any:
        status = (await workloads.get(JOBS, "shards"))["status"]
        return status if "Failed" in true_conditions(status) else None

    status = await workloads.until(failed)
    assert true_conditions(status) == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}
    counts = ("completedIndexes", "failedIndexes", "succeeded", "failed", "ready", "terminating")
    assert [status[key] for key in counts] == ["0,2", "1", 2, 1, 0, 0]


@pytest.mark.parametrize("rule", [{"succeededIndexes": "1"}, {"succeededCount": 1}])
async def test_a_success_policy_ends_a_job_and_its_other_pods(workloads: Any, rule: Any) -> None:
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    policy = {"successPolicy": {"rules": [rule]}, "template": job_template()}
    await workloads.create(JOBS, "lead", spec={**spec, **policy})
    for pod in await workloads.pods(2):
        if pod["metadata"]["annotations"][INDEX] == "1":
            await workloads.ends(pod, "Succeeded")

    async def complete() -> Any:
        status = (await workloads.get(JOBS, "lead"))["status"]
        return status if "Complete" in true_conditions(status) else None

    status = await workloads.until(complete)
    assert true_conditions(status) == {"SuccessCriteriaMet": "SuccessPolicy", "Complete": "SuccessPolicy"}
    assert {c["message"] for c in status["conditions"]} == {"Matched rules at index 0"}
    assert (status["succeeded"], status["completedIndexes"]) == (1, "1")
    assert len(await workloads.pods(1)) == 1


async def test_a_job_adopts_an_orphan_and_releases_what_no_longer_matches(workloads: Any) -> None:
    job = await workloads.create(JOBS, "pi", spec={"template": job_template()})
    [pod] = await workloads.pods(1)
    name = pod["metadata"]["name"]

    async def owners() -> list[str]:
        references = (await workloads.get(PODS, name))["metadata"].get("ownerReferences") or []
        return [reference["uid"] for reference in references]

    async def is_adopted() -> bool:
        return await owners() == [job["metadata"]["uid"]]

    await workloads.patch(PODS, name, metadata={"ownerReferences": None})
    await workloads.until(is_adopted)

    await workloads.patch(PODS, name, metadata={"labels": dict.fromkeys(pod["metadata"]["labels"])})
    await workloads.pods(2)  # another one is made in its place
    assert await owners() == []


async def test_a_daemon_set_has_a_pod_for_each_node_a_new_one_too(workloads: Any) -> None:
    label = f"of-{uuid.uuid4().hex[:8]}"
    names = [f"{label}-{number}" for number in range(2)]
    spec = selecting(template=template(nodeSelector={"test": label}))

    async def targets(count: int) -> list[str]:
        found = []
        for pod in await workloads.pods(count):
            affinity = pod["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]
            [term] = affinity["nodeSelectorTerms"]
            found += term["matchFields"][0]["values"]
        return sorted(found)

    async def node(name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"test": label}}}
        await workloads.client.create(NODES, body)

    try:
        await node(names[0])
        await workloads.create(DAEMON_SETS, "agent", spec=spec)
        assert await targets(1) == names[:1]
        await node(names[1])
        assert await targets(2) == names
    finally:
        for name in names:
            await workloads.client.delete(NODES, name)
