"""Endpoints of Services, and pods of nodes that are gone, on the embedded API server."""

from typing import Any

from gangline.api.resources import ENDPOINT_SLICES, ENDPOINTS, JOBS, NODES, PODS, SERVICES
from gangline.kube.errors import NotFound


def make_pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "pi", "namespace": "default"},
    "spec": {"clusterIP": "None", "selector": {"app": "pi"}, "ports": [{"port": 22}]},
}


async def addresses(cluster) -> list[str]:
    try:
        found = await cluster.client.get(ENDPOINTS, "pi", "default")
    except NotFound:
        return []
    return [a["ip"] for subset in found.get("subsets") or [] for a in subset.get("addresses", [])]


async def until_addresses(cluster, *want: str) -> None:
    async def equal() -> bool:
        return await addresses(cluster) == list(want)

    await cluster.until(equal)


async def ready(cluster, pod: dict[str, Any], ip: str) -> None:
    conditions = [{"type": "Ready", "status": "True"}]
    await cluster.set_status(pod, "Running", podIP=ip, conditions=conditions)


async def test_endpoints_follow_the_pods_and_go_with_the_service(cluster):
    await cluster.client.create(SERVICES, SERVICE)
    first = await cluster.client.create(PODS, make_pod("one", app="pi"))
    second = await cluster.client.create(PODS, make_pod("two", app="pi"))
    stranger = await cluster.client.create(PODS, make_pod("stranger", app="other"))
    for number, pod in enumerate((first, second, stranger)):
        await cluster.bind(pod)
        await ready(cluster, pod, f"10.0.0.{number + 1}")
    await until_addresses(cluster, "10.0.0.1", "10.0.0.2")

    async def in_slice() -> bool:
        pieces = await cluster.list(ENDPOINT_SLICES)
        found = [e["addresses"][0] for piece in pieces for e in piece["endpoints"]]
        return found == ["10.0.0.1", "10.0.0.2"]

    await cluster.until(in_slice)

    await cluster.set_status(first, "Succeeded")
    await until_addresses(cluster, "10.0.0.2")

    await cluster.client.delete(ENDPOINTS, "pi", "default")
    await until_addresses(cluster, "10.0.0.2")

    await cluster.client.delete(SERVICES, "pi", "default")
    await cluster.until_gone(ENDPOINTS, "pi", "default")

    async def no_slices() -> bool:
        return not await cluster.list(ENDPOINT_SLICES)

    await cluster.until(no_slices)


async def test_endpoints_written_by_hand_are_shown_in_slices(cluster):
    """Kubernetes documentation, "Services", EndpointSlice mirroring."""
    by_hand = {"metadata": {"name": "pi", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}
    await cluster.client.create(SERVICES, {**SERVICE, **by_hand})
    written = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "pi", "namespace": "default", "labels": {"made-by": "hand"}},
        "subsets": [
            {
                "addresses": [{"ip": "10.1.2.3", "hostname": "one"}],
                "notReadyAddresses": [{"ip": "10.1.2.4"}],
                "ports": [{"port": 8080}],
            }
        ],
    }

    def mirrored(*addresses: str) -> Any:
        async def equal() -> Any:
            pieces = await cluster.list(ENDPOINT_SLICES)
            found = [one["addresses"][0] for piece in pieces for one in piece["endpoints"]]
            return found == list(addresses) and (pieces or True)

        return cluster.until(equal)

    made = await cluster.client.create(ENDPOINTS, written)
    (piece,) = await mirrored("10.1.2.3", "10.1.2.4")
    assert piece["metadata"]["labels"] == {
        "made-by": "hand",
        "kubernetes.io/service-name": "pi",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    }
    assert [one["conditions"]["ready"] for one in piece["endpoints"]] == [True, False]
    assert piece["endpoints"][0]["hostname"] == "one"
    assert [port["port"] for port in piece["ports"]] == [8080]

    made["subsets"][0] = {"addresses": [{"ip": "10.2.3.4"}], "ports": [{"port": 80}]}
    await cluster.client.update(ENDPOINTS, made)
    await mirrored("10.2.3.4")
    await cluster.client.delete(ENDPOINTS, "pi", "default")
    await mirrored()

    unshown = {**written["metadata"], "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
    await cluster.client.create(ENDPOINTS, {**written, "metadata": unshown})
    await cluster.client.patch(SERVICES, "pi", {"spec": {"selector": {"app": "pi"}}}, "default")
    pod = await cluster.client.create(PODS, make_pod("one", app="pi"))
    await cluster.bind(pod)
    await ready(cluster, pod, "10.0.0.1")
    await mirrored("10.0.0.1")


async def test_the_pods_of_a_deleted_node_are_removed_and_their_job_goes_on(cluster):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    await cluster.client.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "pi", "namespace": "default"},
            "spec": {"template": template, "backoffLimit": 3},
        },
    )

    async def first_pod() -> Any:
        return next(iter(await cluster.list(PODS)), None)

    pod = await cluster.until(first_pod)
    await cluster.bind(pod)
    await cluster.set_status(pod, "Running")

    await cluster.client.delete(NODES, "node-0")

    await cluster.until_gone(PODS, pod["metadata"]["name"], "default")

    async def is_counted() -> bool:
        return (await cluster.client.get(JOBS, "pi", "default"))["status"].get("failed") == 1

    await cluster.until(is_counted)
