"""Jobs on the embedded API server; the tests play the node agent. The rules are in tests/unit."""

import asyncio
from typing import Any

from gangline.api.resources import EVENTS, JOBS, PODS
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.server.resources import STORED_KINDS


def make_job(name: str = "pi", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


async def pods_of(cluster, count: int) -> list[dict[str, Any]]:
    async def enough() -> tuple[list[dict[str, Any]]] | None:
        pods = await cluster.list(PODS)
        return (pods,) if len(pods) == count else None

    return (await cluster.until(enough))[0]


async def job_with(cluster, condition: str, name: str = "pi") -> dict[str, Any]:
    async def has_condition() -> dict[str, Any] | None:
        job = await cluster.client.get(JOBS, name, "default")
        conditions = job.get("status", {}).get("conditions", [])
        return job if any(c["type"] == condition and c["status"] == "True" for c in conditions) else None

    return await cluster.until(has_condition)


async def test_a_job_runs_to_completion(cluster):
    job = await cluster.client.create(JOBS, make_job())
    [pod] = await pods_of(cluster, 1)

    assert pod["metadata"]["name"].startswith("pi-")
    assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "pi"

    await cluster.bind(pod)
    await cluster.set_status(pod, "Running")
    await cluster.set_status(pod, "Succeeded")
    status = (await job_with(cluster, "Complete"))["status"]
    assert status["succeeded"] == 1
    assert status["completionTime"]
    assert "active" not in status or status["active"] == 0
    assert len(await cluster.list(PODS)) == 1

    async def reasons() -> bool:
        return {"SuccessfulCreate", "Completed"} <= {e["reason"] for e in await cluster.list(EVENTS)}

    await cluster.until(reasons)


async def test_exactly_the_pods_asked_for_are_created(cluster):
    await cluster.client.create(JOBS, make_job(parallelism=20, completions=40))
    await pods_of(cluster, 20)

    for pod in await cluster.list(PODS):
        await cluster.bind(pod)
        await cluster.set_status(pod, "Succeeded")
    pods = await pods_of(cluster, 40)

    for pod in pods:
        if pod["status"]["phase"] != "Succeeded":
            await cluster.set_status(pod, "Succeeded")
    assert (await job_with(cluster, "Complete"))["status"]["succeeded"] == 40
    assert len(await cluster.list(PODS)) == 40


async def test_a_failure_beyond_the_limit_ends_the_job_and_its_other_pods(cluster):
    await cluster.client.create(JOBS, make_job(backoffLimit=0, parallelism=2, completions=2))
    first, second = await pods_of(cluster, 2)
    await cluster.bind(second)
    await cluster.set_status(second, "Running")

    await cluster.set_status(first, "Failed")
    await job_with(cluster, "FailureTarget")

    async def is_terminating() -> bool:
        live = await cluster.client.get(PODS, second["metadata"]["name"], "default")
        return "deletionTimestamp" in live["metadata"]

    await cluster.until(is_terminating)
    job = await cluster.client.get(JOBS, "pi", "default")
    assert not any(c["type"] == "Failed" for c in job["status"]["conditions"])

    await cluster.confirm_deletion(second)
    status = (await job_with(cluster, "Failed"))["status"]
    assert status["failed"] == 2
    assert "completionTime" not in status


async def test_counts_survive_a_restart_of_the_controllers(client, cluster):
    await cluster.client.create(JOBS, make_job(backoffLimit=5))
    [pod] = await pods_of(cluster, 1)
    await cluster.bind(pod)
    await cluster.set_status(pod, "Failed")

    async def is_counted() -> bool:
        return (await client.get(JOBS, "pi", "default"))["status"].get("failed") == 1

    await cluster.until(is_counted)
    second = asyncio.create_task(run_controllers(client, STORED_KINDS))
    await client.patch(JOBS, "pi", {"spec": {"suspend": True}}, "default")
    job = await job_with(cluster, "Suspended")
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)

    assert job["status"]["failed"] == 1


async def test_suspending_removes_the_pods_and_resuming_makes_new_ones(cluster):
    await cluster.client.create(JOBS, make_job(backoffLimit=0, suspend=True))
    await job_with(cluster, "Suspended")
    assert await cluster.list(PODS) == []

    await cluster.client.patch(JOBS, "pi", {"spec": {"suspend": False}}, "default")
    [first] = await pods_of(cluster, 1)

    await cluster.client.patch(JOBS, "pi", {"spec": {"suspend": True}}, "default")
    await pods_of(cluster, 0)

    await cluster.client.patch(JOBS, "pi", {"spec": {"suspend": False}}, "default")
    [second] = await pods_of(cluster, 1)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    job = await cluster.client.get(JOBS, "pi", "default")
    assert job["status"].get("failed", 0) == 0


async def test_a_finished_job_with_no_time_to_live_left_is_deleted_with_its_pods(cluster):
    await cluster.client.create(JOBS, make_job(ttlSecondsAfterFinished=0))
    [pod] = await pods_of(cluster, 1)
    await cluster.bind(pod)
    await cluster.set_status(pod, "Succeeded")

    await cluster.until_gone(JOBS, "pi", "default")
    await pods_of(cluster, 0)


async def test_many_jobs_at_once(cluster):
    names = [f"job-{index}" for index in range(50)]
    await asyncio.gather(*(cluster.client.create(JOBS, make_job(name)) for name in names))

    for pod in await pods_of(cluster, 50):
        await cluster.set_status(pod, "Succeeded")
    for name in names:
        await job_with(cluster, "Complete", name)
    await asyncio.gather(*(cluster.client.delete(JOBS, name, "default") for name in names))
    await pods_of(cluster, 0)


async def test_an_indexed_job_runs_every_index(cluster):
    await cluster.client.create(JOBS, make_job(completionMode="Indexed", completions=3, parallelism=2))

    for count in (2, 3):
        for pod in await pods_of(cluster, count):
            if pod["status"]["phase"] == "Pending":
                await cluster.bind(pod)
                await cluster.set_status(pod, "Succeeded")
    status = (await job_with(cluster, "Complete"))["status"]
    assert (status["completedIndexes"], status["succeeded"]) == ("0-2", 3)


async def test_an_orphan_is_adopted_and_a_pod_that_no_longer_matches_is_released(cluster):
    job = await cluster.client.create(JOBS, make_job(parallelism=1, completions=2))
    [pod] = await pods_of(cluster, 1)
    name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]

    async def owner_of() -> str:
        references = (await cluster.client.get(PODS, name, "default"))["metadata"].get("ownerReferences")
        return references[0]["uid"] if references else "nobody"

    async def is_owned() -> bool:
        return await owner_of() == job["metadata"]["uid"]

    await cluster.client.patch(PODS, name, {"metadata": {"ownerReferences": None}}, "default")
    await cluster.until(is_owned)
    assert len(await cluster.list(PODS)) == 1

    await cluster.client.patch(PODS, name, {"metadata": {"labels": dict.fromkeys(labels)}}, "default")
    pods = await pods_of(cluster, 2)  # the Job wants another one in its place
    assert await owner_of() == "nobody"
    assert sum("ownerReferences" in pod["metadata"] for pod in pods) == 1


async def test_indexes_with_limits_of_their_own_end_a_job_with_those_that_failed(cluster):
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0}
    await cluster.client.create(JOBS, make_job(**spec))
    for pod in await pods_of(cluster, 2):
        annotations = pod["metadata"]["annotations"]
        assert annotations["batch.kubernetes.io/job-index-failure-count"] == "0"
        await cluster.bind(pod)
        is_first = annotations["batch.kubernetes.io/job-completion-index"] == "0"
        await cluster.set_status(pod, "Failed" if is_first else "Succeeded")

    status = (await job_with(cluster, "Failed"))["status"]
    assert (status["failedIndexes"], status["completedIndexes"]) == ("0", "1")
    assert (status["failed"], status["succeeded"], status["ready"], status["terminating"]) == (1, 1, 0, 0)
    assert len(await cluster.list(PODS)) == 2
