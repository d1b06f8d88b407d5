"""Owners and dependents, and the end of namespaces, on the embedded API server."""

import asyncio
from typing import Any

import pytest

from gangline.api.resources import (
    CONFIG_MAPS,
    CRDS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from gangline.cluster.server.resources import STORED_KINDS
from gangline.kube.errors import NotFound

SLEDS = Resource("example.com", "v1", "sleds", "Sled")
SLED_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sleds.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "sleds", "kind": "Sled", "singular": "sled", "listKind": "SledList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


def config_map(name: str, *owners: dict[str, Any], namespace: str = "default", block: bool = False) -> Any:
    refs = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if refs:
        metadata["ownerReferences"] = refs
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def make(cluster, manifest: Any) -> Any:
    return await cluster.client.create(CONFIG_MAPS, manifest)


async def test_dependents_go_with_their_owner_through_the_generations(cluster):
    owner = await make(cluster, config_map("owner"))
    child = await make(cluster, config_map("child", owner))
    await make(cluster, config_map("grandchild", child))
    await make(cluster, config_map("stranger"))

    await cluster.client.delete(CONFIG_MAPS, "owner", "default")

    await cluster.until_gone(CONFIG_MAPS, "child", "default")
    await cluster.until_gone(CONFIG_MAPS, "grandchild", "default")
    assert await cluster.client.get(CONFIG_MAPS, "stranger", "default")


async def test_foreground_deletion_removes_blocking_dependents_first(cluster):
    owner = await make(cluster, config_map("owner"))
    child = config_map("child", owner, block=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    await make(cluster, child)

    await cluster.client.delete(CONFIG_MAPS, "owner", "default", propagation="Foreground")

    async def is_child_going() -> bool:
        live = await cluster.client.get(CONFIG_MAPS, "child", "default")
        return "deletionTimestamp" in live["metadata"]

    await cluster.until(is_child_going)
    assert await cluster.client.get(CONFIG_MAPS, "owner", "default")

    await cluster.client.patch(CONFIG_MAPS, "child", {"metadata": {"finalizers": None}}, "default")
    await cluster.until_gone(CONFIG_MAPS, "child", "default")
    await cluster.until_gone(CONFIG_MAPS, "owner", "default")


async def test_foreground_deletion_of_an_owner_without_dependents(cluster):
    await make(cluster, config_map("owner"))

    await cluster.client.delete(CONFIG_MAPS, "owner", "default", propagation="Foreground")

    await cluster.until_gone(CONFIG_MAPS, "owner", "default")


async def test_orphaned_dependents_stay_without_their_owner(cluster):
    owner = await make(cluster, config_map("owner"))
    await make(cluster, config_map("child", owner))

    await cluster.client.delete(CONFIG_MAPS, "owner", "default", propagation="Orphan")

    await cluster.until_gone(CONFIG_MAPS, "owner", "default")
    child = await cluster.client.get(CONFIG_MAPS, "child", "default")
    assert "ownerReferences" not in child["metadata"]


async def test_a_dependent_with_another_owner_left_stays(cluster):
    first = await make(cluster, config_map("first"))
    second = await make(cluster, config_map("second"))
    await make(cluster, config_map("child", first, second))

    await cluster.client.delete(CONFIG_MAPS, "first", "default")

    async def has_one_owner() -> bool:
        child = await cluster.client.get(CONFIG_MAPS, "child", "default")
        return [ref["name"] for ref in child["metadata"]["ownerReferences"]] == ["second"]

    await cluster.until(has_one_owner)


async def test_an_object_made_after_its_owner_died_is_removed(cluster):
    owner = await make(cluster, config_map("owner"))
    await cluster.client.delete(CONFIG_MAPS, "owner", "default")
    owner["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"

    await make(cluster, config_map("late", owner))

    await cluster.until_gone(CONFIG_MAPS, "late", "default")


async def test_another_owner_of_the_same_name_does_not_count(cluster):
    owner = await make(cluster, config_map("owner"))
    impostor = {**owner, "metadata": {**owner["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}

    await make(cluster, config_map("child", impostor))

    await cluster.until_gone(CONFIG_MAPS, "child", "default")
    assert await cluster.client.get(CONFIG_MAPS, "owner", "default")


async def test_an_owner_of_a_kind_that_is_not_served_counts_as_alive(cluster):
    unknown = {"apiVersion": "example.com/v9", "kind": "Ghost", "metadata": {"name": "g", "uid": "u-1"}}
    await make(cluster, config_map("kept", unknown))
    owner = await make(cluster, config_map("owner"))
    await make(cluster, config_map("child", owner))
    await cluster.client.delete(CONFIG_MAPS, "owner", "default")
    await cluster.until_gone(CONFIG_MAPS, "child", "default")

    assert await cluster.client.get(CONFIG_MAPS, "kept", "default")


async def test_custom_kinds_own_and_are_owned(cluster):
    await cluster.client.create(CRDS, SLED_CRD)
    sled = {
        "apiVersion": "example.com/v1",
        "kind": "Sled",
        "metadata": {"name": "red", "namespace": "default"},
    }

    async def created() -> Any:
        try:
            return await cluster.client.create(SLEDS, sled)
        except NotFound:
            return None

    owner = await cluster.until(created)
    child = await make(cluster, config_map("child", owner))
    sled["metadata"] = {**config_map("blue", child)["metadata"]}
    await cluster.client.create(SLEDS, sled)

    await cluster.client.delete(SLEDS, "red", "default")

    await cluster.until_gone(CONFIG_MAPS, "child", "default")
    await cluster.until_gone(SLEDS, "blue", "default")


async def test_a_hundred_owners_at_once(cluster):
    async def family(index: int) -> None:
        owner = await make(cluster, config_map(f"owner-{index}"))
        await make(cluster, config_map(f"a-{index}", owner))
        await make(cluster, config_map(f"b-{index}", owner))

    await asyncio.gather(*(family(index) for index in range(100)))
    await cluster.client.request("DELETE", CONFIG_MAPS.path("default"), params={"fieldSelector": ""})

    async def is_empty() -> bool:
        left = {one["metadata"]["name"] for one in await cluster.list(CONFIG_MAPS)}
        return left <= {"kube-root-ca.crt"}  # which each namespace gets again

    await cluster.until(is_empty)


@pytest.fixture
async def team(cluster):
    """A namespace, with its service account."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await cluster.client.create(NAMESPACES, manifest)

    async def has_account() -> Any:
        try:
            return await cluster.client.get(SERVICE_ACCOUNTS, "default", "team")
        except NotFound:
            return None

    await cluster.until(has_account)
    return cluster


async def test_a_default_service_account_comes_back(team):
    old = await team.client.get(SERVICE_ACCOUNTS, "default", "team")
    await team.client.delete(SERVICE_ACCOUNTS, "default", "team")

    async def is_new() -> bool:
        try:
            live = await team.client.get(SERVICE_ACCOUNTS, "default", "team")
        except NotFound:
            return False
        return live["metadata"]["uid"] != old["metadata"]["uid"]

    await team.until(is_new)


async def test_a_namespace_goes_once_its_content_has_gone(team):
    await make(team, config_map("settings", namespace="team"))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "team"}}
    await team.client.create(SECRETS, secret)
    pod = await team.client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "runner", "namespace": "team"},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        },
    )
    await team.bind(pod)

    await team.client.delete(NAMESPACES, "team")

    async def is_pod_going() -> bool:
        return "deletionTimestamp" in (await team.client.get(PODS, "runner", "team"))["metadata"]

    await team.until(is_pod_going)
    assert (await team.client.get(NAMESPACES, "team"))["status"]["phase"] == "Terminating"
    assert await team.client.get(CONFIG_MAPS, "settings", "team")

    await team.confirm_deletion(pod)
    await team.until_gone(CONFIG_MAPS, "settings", "team")
    await team.until_gone(NAMESPACES, "team")


async def test_kinds_are_followed_from_their_first_object_on(cluster, server):
    roles = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
    owner = await make(cluster, config_map("owner"))
    absent = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "x", "uid": "gone"},
    }

    for name, of in (("of-owner", owner), ("of-absent", absent)):
        metadata = config_map(name, of)["metadata"]
        await cluster.client.create(
            roles, {"apiVersion": roles.api_version, "kind": "Role", "metadata": metadata}
        )
    await cluster.client.delete(CONFIG_MAPS, "owner", "default")

    await cluster.until_gone(roles, "of-owner", "default")
    await cluster.until_gone(roles, "of-absent", "default")
    assert server.context.store.ring.watcher_count < len(STORED_KINDS), (
        "kinds without objects are not watched"
    )
