"""A long job that can go on is suspended for a short one, resumes, and ends from its checkpoint.

In scope: operator, scheduler and controllers of the embedded server. The test is the node agent, and the
program: a worker counts while it runs, and what it has counted is its checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline.api.crds import crds, gang_crds
from gangline.api.resources import (
    CRDS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PYTORCHJOBS,
    SCHEDULER_PLUGINS_POD_GROUPS,
)
from gangline.cluster.controllers.all import run_controllers
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.server.resources import STORED_KINDS
from gangline.cluster.server.server import ApiServer
from gangline.jobs.settings import Settings
from gangline.kube.apply import apply
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.operator.operator import Operator
from gangline.placement import Policy, SuspensionBounds
from gangline.scheduler.scheduler import Scheduler
from gangline.workloads.start_gates import gates_of
from gangline.workloads.suspension import SERVICE_ANNOTATION, SUSPENDED_ANNOTATION

WAIT_S = 60.0
SCHEDULER = "gangline-scheduler"
POLICY = Policy(suspension=SuspensionBounds(long_after_device_s=16.0, min_run_s=1.0), whole_for_s=0.0)
"""Eight devices reach the boundary in two seconds."""

FOR_EVER = 1_000_000


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


def job(name: str, **annotations: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    workers = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": spec}}
    return {
        "apiVersion": PYTORCHJOBS.api_version,
        "kind": PYTORCHJOBS.kind,
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {"Worker": workers}},
    }


class Scene:
    """One node with eight GPUs; it runs what is bound, and each look counts one step for each worker."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.steps: Counter[str] = Counter()
        self.wanted: dict[str, int] = {}
        self.scheduler: asyncio.Task[None] | None = None

    def start_scheduler(self) -> None:
        self.scheduler = asyncio.create_task(Scheduler(self.client, policy=POLICY).run())

    async def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.cancel()
        await asyncio.gather(self.scheduler, return_exceptions=True)

    async def add_node(self) -> None:
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "100", "nvidia.com/gpu": "8"}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
        await self.client.patch(NODES, "a", {"status": status}, subresource="status")

    async def work(self) -> None:
        while True:
            for one in (await self.client.list(PODS, "default")).items:
                if one["spec"].get("nodeName") and one["status"].get("phase") not in ("Succeeded", "Failed"):
                    with contextlib.suppress(NotFound, Conflict):
                        await self._step(one)
            await asyncio.sleep(0.05)

    async def _step(self, one: dict[str, Any]) -> None:
        name = one["metadata"]["name"]
        if one["metadata"].get("deletionTimestamp"):
            await self.client.delete(PODS, name, "default", grace_period_s=0)
            return
        self.steps[name] += 1
        is_done = self.steps[name] >= self.wanted[name.partition("-")[0]]
        phase = "Succeeded" if is_done else "Running"
        if one["status"].get("phase") != phase:
            state = {"terminated": {"exitCode": 0}} if is_done else {"running": {}}
            status = {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "False" if is_done else "True"}],
                "containerStatuses": [{"name": "pytorch", "state": state}],
            }
            await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def submit(self, name: str, steps: int, **annotations: str) -> None:
        self.wanted[name] = steps
        await self.client.create(PYTORCHJOBS, job(name, **annotations))

    async def job(self, name: str) -> dict[str, Any]:
        return await self.client.get(PYTORCHJOBS, name, "default")

    async def condition(self, name: str, type_: str) -> dict[str, Any]:
        status = (await self.job(name)).get("status") or {}
        found = [one for one in status.get("conditions") or [] if one["type"] == type_]
        return found[0] if found else {"status": "", "message": ""}

    async def is_true(self, name: str, type_: str) -> bool:
        return bool((await self.condition(name, type_))["status"] == "True")

    async def run_past_the_boundary(self, name: str) -> None:
        await until(lambda: self.is_true(name, "Running"))
        start_s = asyncio.get_running_loop().time()

        async def is_past() -> bool:
            return asyncio.get_running_loop().time() - start_s > 3.5  # times have whole seconds

        await until(is_past)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    server = ApiServer(ClusterPaths.of("test"))
    await server.start()
    async with Client(Connection(server=f"unix://{server.paths.api_socket}")) as client:
        with contextlib.suppress(ApiError):
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
            await client.create(NAMESPACES, manifest)
        for definition in [*crds(), *gang_crds()]:
            await apply(client, CRDS, definition)

        async def are_served() -> bool:
            with contextlib.suppress(ApiError):
                await client.list(PYTORCHJOBS, "default")
                await client.list(SCHEDULER_PLUGINS_POD_GROUPS, "default")
                return True
            return False

        await until(are_served)
        found = Scene(client)
        await found.add_node()
        operator = Operator(client, settings=Settings(gang_scheduling=SCHEDULER))
        parts = [run_controllers(client, STORED_KINDS), operator.run(), found.work()]
        running = [asyncio.create_task(part) for part in parts]
        found.start_scheduler()
        yield found
        await found.kill_scheduler()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await server.stop()


async def test_a_long_job_is_suspended_for_a_short_one_and_ends_from_its_checkpoint(scene: Scene) -> None:
    await scene.submit("long", FOR_EVER, **{"gangline.dev/resumable": "true"})
    await scene.run_past_the_boundary("long")

    await scene.submit("short", 10)
    await until(lambda: scene.is_true("long", "Suspended"))
    saved = dict(scene.steps)
    found = await scene.job("long")

    why = (await scene.condition("long", "Suspended"))["message"]
    assert "gives way to default/short, which has had less" in why
    assert "suspension 1 of at most 10" in why
    assert found["metadata"]["annotations"][SUSPENDED_ANNOTATION] in why
    had = json.loads(found["metadata"]["annotations"][SERVICE_ANNOTATION])
    assert had["suspensions"] == 1
    assert had["deviceSeconds"] >= 16
    (gate,) = gates_of(found, [])
    assert gate.message.startswith("the scheduler has suspended it: it gives way to default/short")

    await until(lambda: scene.is_true("short", "Succeeded"))
    scene.wanted["long"] = saved["long-worker-0"] + 20
    await until(lambda: scene.is_true("long", "Succeeded"))
    assert scene.steps["long-worker-0"] == saved["long-worker-0"] + 20  # no step was done again
    assert SUSPENDED_ANNOTATION not in (await scene.job("long"))["metadata"]["annotations"]

    async def events() -> bool:
        found = (await scene.client.list(EVENTS, "default")).items
        reasons = [one["reason"] for one in found if one["involvedObject"]["kind"] == PYTORCHJOBS.kind]
        return {"Suspended", "Resumed"} <= set(reasons)

    await until(events)


async def test_a_job_that_cannot_go_on_is_not_suspended(scene: Scene) -> None:
    await scene.submit("long", FOR_EVER)
    await scene.run_past_the_boundary("long")

    await scene.submit("short", 10)
    scene.wanted["long"] = scene.steps["long-worker-0"] + 40
    await until(lambda: scene.is_true("short", "Succeeded"))

    assert await scene.is_true("long", "Succeeded")  # it came first, and was not touched
    assert (await scene.condition("long", "Suspended"))["status"] == ""


async def test_what_a_killed_scheduler_has_suspended_the_next_resumes(scene: Scene) -> None:
    await scene.submit("long", FOR_EVER, **{"gangline.dev/resumable": "true"})
    await scene.run_past_the_boundary("long")
    await scene.submit("short", FOR_EVER)
    await until(lambda: scene.is_true("long", "Suspended"))

    await scene.kill_scheduler()
    scene.start_scheduler()

    async def is_resumed() -> bool:
        return not (await scene.job("long"))["spec"]["runPolicy"].get("suspend")

    await until(is_resumed)
    scene.wanted |= {"short": 0, "long": scene.steps["long-worker-0"] + 5}
    await until(lambda: scene.is_true("long", "Succeeded"))


async def test_what_a_user_has_suspended_is_never_resumed(scene: Scene) -> None:
    await scene.submit("long", FOR_EVER, **{"gangline.dev/resumable": "true"})
    await scene.run_past_the_boundary("long")
    await scene.submit("short", FOR_EVER)
    await until(lambda: scene.is_true("long", "Suspended"))
    await scene.kill_scheduler()

    # While nobody looks a user resumes the job, and suspends it again.
    for is_suspended in (False, True):
        patch = {"spec": {"runPolicy": {"suspend": is_suspended}}}
        await scene.client.patch(PYTORCHJOBS, "long", patch, "default", field_manager="kubectl-patch")
    scene.start_scheduler()
    scene.wanted["short"] = 0
    await until(lambda: scene.is_true("short", "Succeeded"))
    await scene.submit("other", 5)  # the scheduler has looked at everything by then
    await until(lambda: scene.is_true("other", "Succeeded"))

    assert (await scene.job("long"))["spec"]["runPolicy"]["suspend"] is True
    assert not any(name.startswith("long") for name in await _pods(scene))


async def _pods(scene: Scene) -> list[str]:
    return [one["metadata"]["name"] for one in (await scene.client.list(PODS, "default")).items]
