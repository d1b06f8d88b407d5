"""PodGroups on a server, in both dialects: made before the pods, kept in step, gone while suspended.

In scope: the objects. Out of scope: placing gangs; no scheduler runs here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import operator_under_test
import pytest

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import (
    CRDS,
    MPIJOBS,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.operator.operator import Operator

WAIT_S = 60.0
DIALECTS = [("volcano", VOLCANO_POD_GROUPS), ("scheduler-plugins-scheduler", SCHEDULER_PLUGINS_POD_GROUPS)]


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def client(api: Any) -> AsyncIterator[Client]:
    async with api.client() as one:
        for definition in [*crds(), *gang_crds()]:
            await apply(one, CRDS, definition)

        async def is_served() -> bool:
            try:
                for resource in (MPIJOBS, VOLCANO_POD_GROUPS, SCHEDULER_PLUGINS_POD_GROUPS):
                    await one.list(resource, api.namespace)
            except ApiError:
                return False
            return True

        await until(is_served)
        yield one


def job(namespace: str, **policy: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "gangline/base", "command": ["true"]}
    container |= {"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": MPIJOBS.api_version,
        "kind": MPIJOBS.kind,
        "metadata": {"name": "pi", "namespace": namespace},
        "spec": {
            "runPolicy": {"schedulingPolicy": policy},
            "mpiReplicaSpecs": {
                "Launcher": {"template": template},
                "Worker": {"replicas": 2, "template": template},
            },
        },
    }


@pytest.mark.parametrize(("scheduler", "resource"), DIALECTS, ids=[name for name, _ in DIALECTS])
async def test_a_pod_group_follows_its_job(
    api: Any, client: Client, scheduler: str, resource: Resource, tmp_path: Path
) -> None:
    where = api.namespace

    async def pod_group() -> Any:
        with contextlib.suppress(NotFound):
            return await client.get(resource, "pi", where)

    async def edit(**policy: Any) -> None:
        await client.patch(MPIJOBS, "pi", {"spec": {"runPolicy": policy}}, where)

    async with operator_for_gangs(api, client, scheduler, tmp_path / "operator.log"):
        await client.create(MPIJOBS, job(where, queue="q", scheduleTimeoutSeconds=900))
        made = await until(pod_group)
        assert made["spec"]["minMember"] == 3
        assert made["spec"]["minResources"] == {"cpu": "3", "memory": "6Gi"}

        async def workers() -> Any:
            selector = "training.kubeflow.org/job-role=worker"
            pods = (await client.list(PODS, where, label_selector=selector)).items
            return pods if len(pods) == 2 else None

        assert {pod["spec"]["schedulerName"] for pod in await until(workers)} == {scheduler}

        await edit(schedulingPolicy={"minAvailable": 2, "queue": "other", "scheduleTimeoutSeconds": 10})

        async def is_in_step() -> bool:
            spec = (await pod_group())["spec"]
            other = spec.get("queue") == "other" or spec.get("scheduleTimeoutSeconds") == 10
            return spec["minMember"] == 2 and other

        await until(is_in_step)
        await edit(suspend=True)

        async def is_gone() -> bool:
            return await pod_group() is None

        await until(is_gone)
        await edit(suspend=False)
        await until(pod_group)


@pytest.mark.parametrize(("scheduler", "resource"), DIALECTS, ids=[name for name, _ in DIALECTS])
async def test_who_sees_only_the_job_reads_there_why_it_waits(
    api: Any, client: Client, scheduler: str, resource: Resource, tmp_path: Path
) -> None:
    """The test is the gang's scheduler; STATE, which shows the last condition, stays upstream's."""
    where = api.namespace

    async def say(type_: str, reason: str, message: str) -> None:
        told = {"type": type_, "status": "True", "reason": reason, "message": message}
        told["lastTransitionTime"] = "2026-05-01T12:00:00Z"
        patch = {"status": {"phase": "Pending", "conditions": [told]}}
        await client.patch(resource, "pi", patch, where, subresource="status")

    async def waiting(message: str) -> Any:
        found = await client.get(MPIJOBS, "pi", where)
        conditions = (found.get("status") or {}).get("conditions") or []
        said = [one for one in conditions if one["type"] == "Waiting" and one["message"] == message]
        return (found, said[0]) if said else None

    async with operator_for_gangs(api, client, scheduler, tmp_path / "operator.log"):
        await client.create(MPIJOBS, job(where))

        async def is_made() -> Any:
            with contextlib.suppress(NotFound):
                return await client.get(resource, "pi", where)

        await until(is_made)
        for shortfall in ("needs 4 GPUs; 3 are free", "needs 4 GPUs; 2 are free"):
            await say("Unschedulable", "NoRoom", shortfall)
            found, said = await until(lambda text=shortfall: waiting(text))
            assert (said["status"], said["reason"]) == ("True", "NoRoom")
            assert found["status"]["conditions"][-1]["type"] == "Created"
        await say("Scheduled", "Scheduled", "3 pods are placed")
        found, said = await until(lambda: waiting(f"MPIJob {where}/pi waits for nothing: Starting."))
        assert (said["status"], found["status"]["conditions"][-1]["type"]) == ("False", "Created")


@asynccontextmanager
async def operator_for_gangs(api: Any, client: Client, scheduler: str, log: Path) -> AsyncIterator[None]:
    """Run our operator, or the one that ``OPERATOR_COMMAND`` starts."""
    if operator_under_test.COMMAND:
        with operator_under_test.OperatorProcess(
            api.kubeconfig, api.namespace, log, "--gang-scheduling", scheduler
        ):
            yield
        return
    operator = Operator(client, namespace=api.namespace, settings=Settings(gang_scheduling=scheduler))
    running = asyncio.create_task(operator.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
