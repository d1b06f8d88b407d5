"""Jobs that kube-scheduler starts whole by the PodGroups that our operator writes, without ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangline.api.resources import KUBERNETES_POD_GROUPS, MPIJOBS, PYTORCHJOBS, Resource

pytestmark = pytest.mark.gangs


async def until(condition: Any) -> Any:
    async with asyncio.timeout(60):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


def mpijob(scene: Any, cpu: str) -> tuple[Resource, dict[str, Any]]:
    """A launcher and three workers, four CPUs of such pods at ``cpu`` 1."""
    role = {"template": {"spec": scene.pod_spec(cpu)}}
    return MPIJOBS, {"mpiReplicaSpecs": {"Launcher": role, "Worker": {"replicas": 3, **role}}}


def pytorchjob(scene: Any, cpu: str) -> tuple[Resource, dict[str, Any]]:
    spec = scene.pod_spec(cpu)
    spec["containers"][0]["name"] = "pytorch"
    role = {"template": {"spec": spec}}
    return PYTORCHJOBS, {"pytorchReplicaSpecs": {"Master": role, "Worker": {"replicas": 3, **role}}}


@pytest.mark.parametrize("build", [mpijob, pytorchjob])
async def test_a_job_starts_whole_or_not_at_all_and_once_there_is_room(
    kube_scheduler_scene: Any, build: Any
) -> None:
    scene = kube_scheduler_scene
    await scene.add_node()
    await scene.add_node()
    resource, spec = build(scene, "2")  # four pods of two CPUs: all that two nodes of four have
    await scene.add(resource, "first", spec)

    placed = await scene.until_condition(KUBERNETES_POD_GROUPS, "first", "True")
    assert (placed["type"], placed["reason"]) == ("PodGroupInitiallyScheduled", "Scheduled")
    first = await until(lambda: four_bound(scene, "first"))

    await scene.add_node()  # room for two of the next four, which one by one would be taken
    await scene.add(resource, "second", spec)

    waits = await scene.until_condition(KUBERNETES_POD_GROUPS, "second", "False")
    assert waits["reason"] == "Unschedulable"
    assert await scene.bound() == first

    await scene.add_node()

    await scene.until_condition(KUBERNETES_POD_GROUPS, "second", "True")
    await until(lambda: four_bound(scene, "second"))


async def four_bound(scene: Any, job: str) -> set[str]:
    found = {name for name in await scene.bound() if name.startswith(job)}
    return found if len(found) == 4 else set()


async def test_explain_names_the_gang_the_shortfall_and_who_decides(kube_scheduler_scene: Any) -> None:
    scene = kube_scheduler_scene
    await scene.add_node()
    resource, spec = mpijob(scene, "2")
    await scene.add(resource, "pi", spec)
    waits = await scene.until_condition(KUBERNETES_POD_GROUPS, "pi", "False")

    said = await scene.explain("pi")

    assert said.startswith(f"mpijob {scene.namespace}/pi waits: NoRoom\n"), said
    assert f"gang          {scene.namespace}/pi" in said
    assert "`default-scheduler` places its pods, together by PodGroup `pi`, and not Gangline" in said, said
    assert f"it said       Unschedulable: {waits['message']}" in said, said
    assert "why           " in said, said
