"""An indexed Job whose pods tell the size of their gang, as the Job controller makes them."""

from __future__ import annotations

from typing import Any

from gangline.api.resources import PODS

LABELS = {"batch.kubernetes.io/job-name": "job"}


async def add(cluster: Any, index: int, suffix: str = "aaaaa") -> str:
    name = f"job-{index}-{suffix}"
    pod = await cluster.add_pod(name, cpu="1", labels={**LABELS, "index": str(index)}, restartPolicy="Never")
    assert pod["metadata"]["name"] == name
    return name


async def end(cluster: Any, name: str, phase: str) -> None:
    status = {"status": {"phase": phase}}
    await cluster.client.patch(PODS, name, status, "default", subresource="status")


async def test_a_job_starts_whole_and_a_pod_made_anew_joins_it(cluster: Any, monkeypatch: Any) -> None:
    create = cluster.client.create

    async def with_size(resource: Any, obj: Any) -> Any:
        if resource is PODS:
            obj["metadata"]["annotations"] = {"gangline.dev/gang-size": "4"}
        return await create(resource, obj)

    monkeypatch.setattr(cluster.client, "create", with_size)
    await cluster.add_node("a", cpu="3")
    names = [await add(cluster, index) for index in range(4)]
    for name in names:
        assert "there is room for 3" in await cluster.until_unschedulable(name)

    await cluster.add_node("b", cpu="4")
    assert {await cluster.until_bound(name) for name in names} == {"b"}

    for name in names[:2]:
        await end(cluster, name, "Succeeded")
    await end(cluster, names[3], "Failed")
    again = await add(cluster, 3, "bbbbb")
    assert await cluster.until_bound(again) in ("a", "b")
