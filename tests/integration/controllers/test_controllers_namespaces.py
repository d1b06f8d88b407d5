"""What lies in every namespace: whom pods trust, and how they find the API server."""

from typing import Any

from gangline.api.resources import CONFIG_MAPS, ENDPOINT_SLICES, ENDPOINTS, NAMESPACES, PODS, SERVICES
from gangline.cluster.daemon.api_service import api_service
from gangline.kube.errors import NotFound

NAME = "kube-root-ca.crt"


async def authority(cluster, namespace: str) -> dict[str, Any] | None:
    try:
        return (await cluster.client.get(CONFIG_MAPS, NAME, namespace)).get("data")
    except NotFound:
        return None


async def until_there(cluster, namespace: str) -> str:
    async def is_right() -> str | None:
        data = await authority(cluster, namespace)
        return data["ca.crt"] if data and set(data) == {"ca.crt"} and "BEGIN" in data["ca.crt"] else None

    return await cluster.until(is_right)


async def test_each_namespace_says_whom_to_trust_whatever_becomes_of_the_config_map(cluster):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    await cluster.client.create(NAMESPACES, space)
    first = await until_there(cluster, "new")
    assert await until_there(cluster, "default") == first

    await cluster.client.delete(CONFIG_MAPS, NAME, "new")
    assert await until_there(cluster, "new") == first

    await cluster.client.patch(CONFIG_MAPS, NAME, {"data": {"ca.crt": "", "more": "x"}}, "new")
    assert await until_there(cluster, "new") == first


async def test_pods_go_before_the_rest_of_a_namespace_and_it_says_what_is_left(cluster):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}}
    await cluster.client.create(NAMESPACES, space)
    await until_there(cluster, "going")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "held", "namespace": "going", "finalizers": ["example.com/held"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await cluster.client.create(PODS, pod)
    await cluster.client.delete(NAMESPACES, "going")

    async def conditions() -> dict[str, Any] | None:
        status = (await cluster.client.get(NAMESPACES, "going"))["status"]
        return {found["type"]: found for found in status.get("conditions", [])}

    told = await cluster.until(conditions)
    assert told["NamespaceDeletionContentFailure"]["status"] == "False"
    assert "pods. has 1 resource instances" in told["NamespaceContentRemaining"]["message"]
    assert "example.com/held in 1" in told["NamespaceFinalizersRemaining"]["message"]
    assert await authority(cluster, "going")  # still there, as its pod is

    await cluster.client.patch(PODS, "held", {"metadata": {"finalizers": None}}, "going")

    async def is_gone() -> bool:
        try:
            await cluster.client.get(NAMESPACES, "going")
        except NotFound:
            return True
        return False

    await cluster.until(is_gone)


async def test_the_service_kubernetes_leads_to_the_server_where_pods_reach_it(cluster):
    for resource, obj in api_service("10.213.16.1", 16001):
        await cluster.client.create(resource, obj)
    spec = (await cluster.client.get(SERVICES, "kubernetes", "default"))["spec"]
    assert (spec["clusterIP"], spec["ports"][0]["port"]) == ("10.213.16.1", 443)
    assert await cluster.client.get(ENDPOINTS, "kubernetes", "default")
    assert await cluster.client.get(ENDPOINT_SLICES, "kubernetes", "default")


def test_no_endpoints_stand_on_loopback():
    assert [resource for resource, _ in api_service("127.0.0.1", 16001)] == [SERVICES]
