"""Endpoints and slices as values."""

from typing import Any

import msgspec

from gangline.api.core import Pod, Service
from gangline.cluster.controllers.endpoints_plan import (
    SLICE_ENDPOINTS_MAX,
    endpoints_manifest,
    selects,
    slice_manifests,
)


def service(**spec: Any) -> Service:
    spec = {"selector": {"app": "pi"}, "clusterIP": "None", **spec}
    metadata = {"name": "pi", "namespace": "team", "uid": "svc-uid"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Service)


def pod(name: str, ip: str = "10.0.0.1", *, ready: bool = True, phase: str = "Running", **more: Any) -> Pod:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "labels": {"app": "pi"}}
    if more.pop("deleted", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "podIP": ip, "conditions": conditions}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": "node-0", **more}, "status": status}, Pod
    )


def addresses(manifest: Any, field: str = "addresses") -> list[str]:
    return [entry["ip"] for subset in manifest["subsets"] for entry in subset.get(field, [])]


def test_ready_pods_have_addresses_and_the_others_wait():
    manifest = endpoints_manifest(
        service(ports=[{"port": 80}]), [pod("b", "10.0.0.2"), pod("a"), pod("c", "10.0.0.3", ready=False)]
    )

    assert addresses(manifest) == ["10.0.0.1", "10.0.0.2"]
    assert addresses(manifest, "notReadyAddresses") == ["10.0.0.3"]
    assert manifest["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "svc-uid"


def test_ended_pods_and_pods_without_an_address_are_left_out():
    pods = [pod("done", phase="Succeeded"), pod("dead", phase="Failed"), pod("new", "", ready=False)]

    assert endpoints_manifest(service(), pods)["subsets"] == []
    [piece] = slice_manifests(service(), pods)
    assert piece["endpoints"] == []


def test_terminating_pods_are_not_ready_but_may_still_serve():
    [piece] = slice_manifests(service(), [pod("a", deleted=True)])

    assert piece["endpoints"][0]["conditions"] == {"ready": False, "serving": True, "terminating": True}


def test_unready_addresses_can_be_published():
    published = service(publishNotReadyAddresses=True)

    assert addresses(endpoints_manifest(published, [pod("a", ready=False)])) == ["10.0.0.1"]
    [piece] = slice_manifests(published, [pod("a", ready=False)])
    assert piece["endpoints"][0]["conditions"]["ready"] is True


def test_a_pod_is_named_only_below_its_own_subdomain():
    pods = [pod("a", hostname="a", subdomain="pi"), pod("b", "10.0.0.2", hostname="b", subdomain="other")]

    [piece] = slice_manifests(service(), pods)

    assert [endpoint.get("hostname") for endpoint in piece["endpoints"]] == ["a", None]
    assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "pi"


def test_a_named_port_is_looked_up_in_each_pod():
    def serving(name: str, ip: str, number: int) -> Pod:
        container = {"name": "main", "ports": [{"name": "http", "containerPort": number}]}
        return pod(name, ip, containers=[container])

    web = service(ports=[{"name": "web", "port": 80, "targetPort": "http"}])
    manifest = endpoints_manifest(
        web, [serving("a", "10.0.0.1", 8080), serving("b", "10.0.0.2", 9090), pod("c", "10.0.0.3")]
    )

    assert [(subset["ports"][0]["port"], len(subset["addresses"])) for subset in manifest["subsets"]] == [
        (8080, 1),
        (9090, 1),
    ]


def test_a_slice_holds_a_thousand_endpoints():
    pieces = slice_manifests(service(), [pod(f"p{index:05}") for index in range(SLICE_ENDPOINTS_MAX + 1)])

    assert [len(piece["endpoints"]) for piece in pieces] == [1000, 1]
    assert len({piece["metadata"]["name"] for piece in pieces}) == 2


def test_a_service_selects_by_all_of_its_labels():
    assert selects(service(), pod("a"))
    assert not selects(service(selector={"app": "pi", "role": "worker"}), pod("a"))
    assert not selects(service(selector={}), pod("a"))
    assert not selects(service(type="ExternalName"), pod("a"))
