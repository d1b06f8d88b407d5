"""``gangline explain`` asks the scheduler that works, and says what a look at the whole cluster says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gangline.api.resources import NAMESPACES
from gangline.client.explain import explanation
from gangline.client.explain.explanation import explain_job
from gangline.client.target import ClusterTarget
from gangline.cluster.paths import ClusterPaths
from gangline.placement import Workload
from gangline.scheduler.service import SchedulerOptions, SchedulerService


@asynccontextmanager
async def running(service: SchedulerService) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service.run())
        yield
        task.cancel()


NAME = "theirs"
"""A one-machine cluster answers for the usual names itself."""


async def test_the_scheduler_answers_and_no_list_of_all_pods_is_read(
    idle_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = idle_cluster
    target = ClusterTarget(
        kubeconfig=ClusterPaths.of("test").kubeconfig, namespace="default", scheduler_namespace="locks"
    )
    monkeypatch.setattr(explanation, "ESTIMATED_PODS_MAX", -1)
    await cluster.client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "locks"}}
    )
    await cluster.add_node("node-0", cpu="2")
    options = SchedulerOptions(names=(NAME,), leader_elect=True, lock_namespace="locks", metrics_port=0)
    async with running(SchedulerService(cluster.client, options)):
        await cluster.add_pod("held", cpu="1", schedulerName=NAME)
        await cluster.until_bound("held")
        await cluster.add_pod("big", cpu="2", schedulerName=NAME)
        await cluster.until_unschedulable("big")
        whole = await explanation._explain_by_all(
            cluster.client, target, "pod/big", Workload(), placement=False
        )

        async def no_look(*_: Any) -> None:
            raise AssertionError("all pods are read")

        monkeypatch.setattr("gangline.client.jobs.cluster_view.look", no_look)
        near = await explain_job(target, "pod/big", Workload())
        placed = await explain_job(target, "pod/held", Workload())

    assert near.pop("answered")["by"] == whole["schedulers"][0]["message"].split("`")[1]
    for value in (near, whole):  # it knows from its binding on since when a pod runs
        assert value.pop("blockers")[0]["gang"] == "default/held"
    assert near == whole
    assert (near["reason"], near["message"]) == (
        "NoRoom",
        "needs 2 cpu on one node; best node node-0 has 1 free",
    )
    assert placed["state"] == "starts"
