"""TrainJobs whose runtimes ask for what only JobSet does: its own controller runs them, ours follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from jobset_controller import JobSetController

from gangline.api.resources import EVENTS, JOB_SETS, PODS, TRAINING_RUNTIMES, TRAINJOBS
from gangline.operator.operator import Operator

pytestmark = pytest.mark.gangs

ENDS_AT_ONCE = {
    "maxRestarts": 2,
    "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}],
}
STEP = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}


def replicated(name: str, **more: Any) -> dict[str, Any]:
    pods = {"spec": {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never"}}
    step = STEP if name == "node" else {}
    return {"name": name, "template": {**step, "spec": {"template": pods, "backoffLimit": 0}}, **more}


class Scene:
    """A namespace with an operator, JobSet's controller beside it; the test plays the kubelets."""

    def __init__(self, gangs: Any) -> None:
        self.client, self.namespace, self.until = gangs.client, gangs.namespace, gangs.until

    async def add_runtime(self, *jobs: dict[str, Any], **jobset: Any) -> None:
        spec = {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": list(jobs) or [replicated("node")], **jobset}},
        }
        await self.add(TRAINING_RUNTIMES, "own", spec)

    async def add(self, resource: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
        made: dict[str, Any] = await self.client.create(resource, body)
        return made

    async def submit(self, nodes: int = 2, **spec: Any) -> None:
        ref = {"name": "own", "kind": TRAINING_RUNTIMES.kind}
        await self.add(TRAINJOBS, "train", {"runtimeRef": ref, "trainer": {"numNodes": nodes}, **spec})

    async def edit(self, **spec: Any) -> None:
        await self.client.patch(TRAINJOBS, "train", {"spec": spec}, self.namespace)

    async def pods(self, count: int, *, but: set[str] = frozenset()) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """Wait for so many pods, none of those uids, and return them by rank."""

        async def are_there() -> Any:
            pods = (await self.client.list(PODS, self.namespace)).items
            pods = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
            fresh = not any(one["metadata"]["uid"] in but for one in pods)
            return [pods] if len(pods) == count and fresh else None

        (found,) = await self.until(are_there)
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    async def set_phase(self, pod: dict[str, Any], phase: str) -> None:
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        body = {"status": {"phase": phase, "conditions": ready}}
        await self.client.patch(
            PODS, pod["metadata"]["name"], body, self.namespace, kind="merge", subresource="status"
        )

    async def job(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the job's status is so, and return it."""

        async def found() -> Any:
            job = await self.client.get(TRAINJOBS, "train", self.namespace)
            status = job.get("status") or {}
            return status if condition(status) else None

        return dict(await self.until(found))

    async def job_set(self) -> dict[str, Any]:
        return dict(await self.until(lambda: self.client.get(JOB_SETS, "train", self.namespace)))

    async def told(self, reason: str) -> str:
        """Wait for an event about the job and return what it says."""

        async def found() -> Any:
            events = (await self.client.list(EVENTS, self.namespace)).items
            return next((one["message"] for one in events if one["reason"] == reason), None)

        return str(await self.until(found))


def holds(type_: str, status: str = "True") -> Callable[[dict[str, Any]], Any]:
    return lambda found: any(
        (one["type"], one["status"]) == (type_, status) for one in found.get("conditions", [])
    )


def reason_of(status: dict[str, Any], type_: str) -> tuple[str, str]:
    return next((one["reason"], one["message"]) for one in status["conditions"] if one["type"] == type_)


@pytest.fixture
async def scene(job_sets: JobSetController, open_scene: Any) -> AsyncIterator[Scene]:
    async with open_scene.running(Operator(open_scene.client, namespace=open_scene.namespace)):
        yield Scene(open_scene)


async def test_a_job_set_runs_the_job_to_its_end_and_is_named_with_its_reason(scene: Scene) -> None:
    await scene.add_runtime(failurePolicy=ENDS_AT_ONCE)
    await scene.submit()

    field = "runtime.spec.template.spec.failurePolicy.rules"
    assert await scene.told("JobSetUsed") == f"JobSet train runs this job, for only JobSet does {field}"
    first, second = await scene.pods(2)
    assert first["metadata"]["name"].startswith("train-node-0-0-")
    variables = {one["name"]: one for one in second["spec"]["containers"][0]["env"]}
    assert variables["PET_NNODES"]["value"] == "2"
    assert variables["PET_MASTER_ADDR"]["value"] == "train-node-0-0.train"
    rank = variables["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert rank == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert (second["spec"]["hostname"], second["spec"]["subdomain"]) == ("train-node-0-1", "train")

    for pod in (first, second):
        await scene.set_phase(pod, "Running")
    status = await scene.job(lambda found: [one["ready"] for one in found.get("jobsStatus", [])] == [1])
    assert status["jobSetFor"] == [field]
    assert "conditions" not in status  # the SDK reads pods while there is none
    for pod in (first, second):
        await scene.set_phase(pod, "Succeeded")
    status = await scene.job(holds("Complete"))
    assert reason_of(status, "Complete") == ("AllJobsCompleted", "jobset completed successfully")


async def test_a_rule_of_the_failure_policy_ends_the_job_and_a_restart_is_counted(scene: Scene) -> None:
    rule = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    await scene.add_runtime(failurePolicy={"maxRestarts": 1, "rules": [rule]})
    await scene.submit(nodes=1)
    (pod,) = await scene.pods(1)
    await scene.set_phase(pod, "Failed")

    (again,) = await scene.pods(1, but={pod["metadata"]["uid"]})
    assert (await scene.job(lambda found: found.get("restarts")))["restarts"] == 1
    await scene.set_phase(again, "Failed")
    status = await scene.job(holds("Failed"))
    assert reason_of(status, "Failed")[0] == "ReachedMaxRestarts"


async def test_jobs_start_in_order_where_the_runtime_says_so(scene: Scene) -> None:
    policy = {"startupPolicyOrder": "InOrder"}
    await scene.add_runtime(replicated("store", replicas=2), replicated("node"), startupPolicy=policy)
    await scene.submit()
    stores = await scene.pods(2)
    assert [one["metadata"]["labels"]["training.kubeflow.org/replica-type"] for one in stores] == [
        "store"
    ] * 2

    for pod in stores:
        await scene.set_phase(pod, "Running")
    assert len(await scene.pods(4)) == 4


async def test_a_suspended_job_holds_no_pods_and_takes_patches_when_it_goes_on(scene: Scene) -> None:
    await scene.add_runtime(failurePolicy=ENDS_AT_ONCE)
    await scene.submit()
    before = {one["metadata"]["uid"] for one in await scene.pods(2)}

    await scene.edit(suspend=True)
    await scene.pods(0)
    await scene.job(holds("Suspended"))
    nodes = {"nodeSelector": {"disk": "fast"}}
    pods = {"template": {"spec": {"template": {"spec": nodes}}}}
    change = {"template": {"spec": {"replicatedJobs": [{"name": "node", **pods}]}}}
    await scene.edit(runtimePatches=[{"manager": "tests/own", "trainingRuntimeSpec": change}])
    await scene.edit(suspend=False)

    after = await scene.pods(2, but=before)
    assert [one["spec"]["nodeSelector"] for one in after] == [{"disk": "fast"}] * 2
    assert reason_of(await scene.job(holds("Suspended", "False")), "Suspended")[0] == "Resumed"


async def test_a_deadline_ends_the_job_and_its_job_set_goes(scene: Scene) -> None:
    await scene.add_runtime(failurePolicy=ENDS_AT_ONCE)
    await scene.submit(nodes=1, activeDeadlineSeconds=2)
    await scene.pods(1)

    status = await scene.job(holds("Failed"))
    assert reason_of(status, "Failed")[0] == "DeadlineExceeded"
    await scene.pods(0)


async def test_a_deleted_job_takes_its_job_set_with_it(scene: Scene) -> None:
    await scene.add_runtime(failurePolicy=ENDS_AT_ONCE)
    await scene.submit()
    await scene.pods(2)
    await scene.client.delete(TRAINJOBS, "train", scene.namespace)

    await scene.pods(0)
    assert not (await scene.client.list(JOB_SETS, scene.namespace)).items
