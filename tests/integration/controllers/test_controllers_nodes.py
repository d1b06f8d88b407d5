"""Pods leave a node whose taints they do not tolerate."""

from __future__ import annotations

from typing import Any

from gangline.api.resources import NODES, PODS

TAINT = {"key": "maintenance", "effect": "NoExecute"}
MEANWHILE = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}


def pod(name: str, *tolerations: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "nodeName": "node-0",
        "containers": [{"name": "c", "image": "i"}],
        "tolerations": list(tolerations),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def test_pods_without_the_toleration_are_deleted_and_others_when_their_time_is_over(
    cluster: Any,
) -> None:
    client = cluster.client
    for one in (pod("none"), pod("meanwhile", MEANWHILE), pod("ever", {"operator": "Exists"})):
        await client.create(PODS, one)
    await client.patch(NODES, "node-0", {"spec": {"taints": [TAINT]}}, kind="merge")

    async def leaving() -> set[str]:
        pods = await cluster.list(PODS)
        return {one["metadata"]["name"] for one in pods if "deletionTimestamp" in one["metadata"]}

    await cluster.until(lambda: is_in("none", leaving))
    await cluster.until(lambda: is_in("meanwhile", leaving))
    assert await leaving() == {"none", "meanwhile"}
    found = await client.get(PODS, "none", "default")
    (condition,) = [one for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert condition["reason"] == "DeletionByTaintManager"


async def is_in(name: str, leaving: Any) -> bool:
    return name in await leaving()
