"""Affinity by labels of namespaces, through an API server."""

from typing import Any

from gangline.api.resources import NAMESPACES, NODES


async def test_a_pod_that_waits_for_a_neighbour_follows_the_labels_of_namespaces(cluster: Any) -> None:
    client = cluster.client
    for name in ("a", "b"):
        await cluster.add_node(name)
        await client.patch(NODES, name, {"metadata": {"labels": {"kubernetes.io/hostname": name}}})
    await cluster.add_pod("there", nodeSelector={"kubernetes.io/hostname": "b"})
    await cluster.until_bound("there")
    rule = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchLabels": {"stage": "test"}},
    }
    required = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    await cluster.add_pod("asks", affinity=required)
    assert await cluster.until_unschedulable("asks")

    await client.patch(NAMESPACES, "default", {"metadata": {"labels": {"stage": "test"}}})

    assert await cluster.until_bound("asks") == "b"
