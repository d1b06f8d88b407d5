"""JobSets, by their own controller: gangs of our scheduler without a word about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from jobset_controller import JobSetController

from gangline.api.resources import JOB_SETS, PODS
from gangline.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.gangs


@pytest.fixture
async def scene(job_sets: JobSetController, open_scene: Any) -> AsyncIterator[Any]:
    async with open_scene.running(Scheduler(open_scene.client, names=("ours",))):
        yield open_scene


def job_set(scene: Any, order: str) -> dict[str, Any]:
    """A driver, and two jobs of two workers: five pods of one CPU."""
    pod = scene.pod_spec("1", schedulerName="ours", restartPolicy="Never")

    def jobs(name: str, replicas: int, pods: int) -> dict[str, Any]:
        spec = {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"spec": pod},
        }
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {
        "replicatedJobs": [jobs("driver", 1, 1), jobs("workers", 2, 2)],
        "network": {"enableDNSHostnames": True},
        "successPolicy": {"operator": "All"},
        "failurePolicy": {"maxRestarts": 0},
        "startupPolicy": {"startupPolicyOrder": order},
    }


async def said(scene: Any, part: str) -> set[str]:
    """What our scheduler says of the pods whose names begin so."""
    pods = (await scene.client.list(PODS, scene.namespace)).items
    found = [pod for pod in pods if pod["metadata"]["name"].startswith(part)]
    conditions = [one for pod in found for one in (pod.get("status") or {}).get("conditions") or []]
    return {one["message"] for one in conditions if (one["type"], one["status"]) == ("PodScheduled", "False")}


async def bound(scene: Any, part: str, count: int) -> bool:
    return len([name for name in await scene.bound() if name.startswith(part)]) == count


async def test_all_jobs_start_together_or_not_at_all(scene: Any) -> None:
    await scene.add_node(cpu="3")
    await scene.add(JOB_SETS, "any", job_set(scene, "AnyOrder"))

    [message] = await scene.until(lambda: all_say_the_same(scene, "any"))
    assert f"gang {scene.namespace}/jobset/any waits: needs room for 5 pods at once" in message
    assert await scene.bound() == set()
    assert f"gang          {scene.namespace}/jobset/any\n" in await scene.explain("jobset/any")

    await scene.add_node(cpu="2")

    await scene.until(lambda: bound(scene, "any", 5))


async def all_say_the_same(scene: Any, part: str) -> set[str]:
    found = await said(scene, part)
    return found if len(found) == 1 and any("needs room for" in one for one in found) else set()


async def test_jobs_in_order_are_gangs_one_after_another(scene: Any) -> None:
    await scene.add_node(cpu="3")
    await scene.add(JOB_SETS, "ordered", job_set(scene, "InOrder"))
    await scene.until(lambda: bound(scene, "ordered-driver", 1))
    [driver] = await scene.bound()

    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}  # the kubelet's part
    status = {"status": ready}
    await scene.client.patch(PODS, driver, status, scene.namespace, kind="strategic", subresource="status")

    [message] = await scene.until(lambda: all_say_the_same(scene, "ordered-workers"))
    assert f"gang {scene.namespace}/jobset/ordered/workers waits: needs room for 4 pods" in message
    assert await scene.bound() == {driver}
