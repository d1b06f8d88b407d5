"""The Endpoints and EndpointSlices of a Service: ``(service, pods) -> manifests``. Pure.

Source: Kubernetes documentation, "Service" and "EndpointSlices". Ended pods and pods without an address
are left out, terminating ones are not ready, ``publishNotReadyAddresses`` counts every pod as ready.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from gangline.api.core import Pod, Service, is_true
from gangline.api.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from gangline.cluster.controllers.pod_rules import owner_reference

SLICE_ENDPOINTS_MAX = 1000
"""Endpoints in one slice; the API allows no more."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
MIRROR = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR_LABEL = "endpointslice.kubernetes.io/skip-mirror"
LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
_NOT_MIRRORED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
)
HEADLESS_LABEL = "service.kubernetes.io/headless"

Manifest = dict[str, Any]


def has_endpoints(service: Service) -> bool:
    """Return whether the endpoints of a Service are ours to make: it selects pods."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def selects(service: Service, pod: Pod) -> bool:
    """Return whether a Service selects a pod of its namespace. Cost: below 1 µs."""
    labels = pod.metadata.labels
    return has_endpoints(service) and all(
        labels.get(key) == value for key, value in service.spec.selector.items()
    )


def endpoints_manifest(service: Service, pods: Iterable[Pod]) -> Manifest:
    """Return the Endpoints of a Service, one subset for each set of resolved ports."""
    subsets: dict[str, Manifest] = {}
    for pod in _candidates(pods):
        ports = _ports(service, pod)
        if ports is None:
            continue
        subset = subsets.setdefault(_ports_key(ports), {"ports": ports})
        is_ready = service.spec.publish_not_ready_addresses or _is_ready(pod)
        subset.setdefault("addresses" if is_ready else "notReadyAddresses", []).append(
            {"ip": pod.status.pod_ip, **_hostname(service, pod), **_origin(pod)}
        )
    ordered = [subsets[key] for key in sorted(subsets)]
    for subset in ordered:
        if not subset["ports"]:
            del subset["ports"]
    metadata = _metadata(service, service.metadata.name, dict(service.metadata.labels))
    return {
        "apiVersion": ENDPOINTS.api_version,
        "kind": ENDPOINTS.kind,
        "metadata": metadata,
        "subsets": ordered,
    }


def slice_manifests(service: Service, pods: Iterable[Pod]) -> list[Manifest]:
    """Return the EndpointSlices of a Service; one without endpoints when it has no pods."""
    groups: dict[str, tuple[list[Manifest], list[Manifest]]] = {}
    for pod in _candidates(pods):
        ports = _ports(service, pod)
        if ports is None:
            continue
        groups.setdefault(_ports_key(ports), (ports, []))[1].append(_endpoint(service, pod))
    chunks = [
        (ports, endpoints[start : start + SLICE_ENDPOINTS_MAX])
        for _, (ports, endpoints) in sorted(groups.items())
        for start in range(0, len(endpoints), SLICE_ENDPOINTS_MAX)
    ]
    labels = {**service.metadata.labels, SERVICE_NAME_LABEL: service.metadata.name, MANAGED_BY_LABEL: MANAGER}
    if service.spec.cluster_ip == "None":
        labels[HEADLESS_LABEL] = ""
    return [
        {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "metadata": _metadata(
                service, slice_name(service.metadata.name, service.metadata.uid, number), labels
            ),
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": ports,
        }
        for number, (ports, endpoints) in enumerate(chunks or [([], [])])
    ]


def slice_name(name: str, owner_uid: str, number: int) -> str:
    """Return the name of a Service's slice: the same each time, another for another Service of the name."""
    return f"{name}-{hashlib.sha256(f'{owner_uid}/{number}'.encode()).hexdigest()[:5]}"


def is_mirrored(service: Service) -> bool:
    """Return whether the Endpoints of a Service are somebody else's to write, and its slices follow them."""
    return not service.spec.selector and service.spec.type != "ExternalName"


def mirrored_manifests(endpoints: Manifest) -> list[Manifest]:
    """Return the EndpointSlices that show what stands in Endpoints which were written by hand.

    Source: Kubernetes documentation, "Services", EndpointSlice mirroring.
    """
    meta = endpoints["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    if labels.get(SKIP_MIRROR_LABEL) == "true" or LEADER_ANNOTATION in annotations:
        return []
    owner = {"apiVersion": ENDPOINTS.api_version, "kind": ENDPOINTS.kind, "controller": True}
    made: list[Manifest] = []
    for subset in endpoints.get("subsets") or ():
        found = [
            {
                "addresses": [address["ip"]],
                "conditions": {"ready": field == "addresses"},
                **{key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)},
            }
            for field in ("addresses", "notReadyAddresses")
            for address in subset.get(field) or ()
        ]
        for family in ("IPv4", "IPv6"):
            of_family = [one for one in found if (":" in one["addresses"][0]) == (family == "IPv6")]
            if not of_family:
                continue
            made.append(
                {
                    "apiVersion": ENDPOINT_SLICES.api_version,
                    "kind": ENDPOINT_SLICES.kind,
                    "metadata": {
                        "name": slice_name(meta["name"], meta["uid"], len(made)),
                        "namespace": meta["namespace"],
                        "labels": {**labels, SERVICE_NAME_LABEL: meta["name"], MANAGED_BY_LABEL: MIRROR},
                        "annotations": {
                            key: value for key, value in annotations.items() if key not in _NOT_MIRRORED
                        },
                        "ownerReferences": [
                            {**owner, "blockOwnerDeletion": True, "name": meta["name"], "uid": meta["uid"]}
                        ],
                    },
                    "addressType": family,
                    "endpoints": of_family[:SLICE_ENDPOINTS_MAX],
                    "ports": subset.get("ports") or [],
                }
            )
    return made


def _candidates(pods: Iterable[Pod]) -> list[Pod]:
    found = [pod for pod in pods if pod.status.pod_ip and not pod.is_finished]
    return sorted(found, key=lambda pod: pod.metadata.name)


def _is_ready(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and is_true(pod.status.conditions, "Ready")


def _endpoint(service: Service, pod: Pod) -> Manifest:
    is_serving = is_true(pod.status.conditions, "Ready")
    conditions = {
        "ready": service.spec.publish_not_ready_addresses or _is_ready(pod),
        "serving": is_serving or service.spec.publish_not_ready_addresses,
        "terminating": pod.metadata.deletion_timestamp is not None,
    }
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": conditions,
        **_hostname(service, pod),
        **_origin(pod),
    }


def _hostname(service: Service, pod: Pod) -> Manifest:
    """A pod has a name of its own below the Service that its ``subdomain`` names."""
    has_name = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return {"hostname": pod.spec.hostname} if has_name else {}


def _origin(pod: Pod) -> Manifest:
    meta = pod.metadata
    target = {"kind": PODS.kind, "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    return (
        {"nodeName": pod.spec.node_name, "targetRef": target} if pod.spec.node_name else {"targetRef": target}
    )


def _ports(service: Service, pod: Pod) -> list[Manifest] | None:
    """Return the ports on this pod; None when it has none of those that the Service names."""
    resolved = []
    for port in service.spec.ports:
        target = port.get("targetPort", port.get("port"))
        protocol = port.get("protocol") or "TCP"
        number = target if isinstance(target, int) else _named_port(pod, str(target), protocol)
        if number is None:
            continue
        entry: Manifest = {"port": number, "protocol": protocol}
        if port.get("name"):
            entry["name"] = port["name"]
        if port.get("appProtocol"):
            entry["appProtocol"] = port["appProtocol"]
        resolved.append(entry)
    return resolved if resolved or not service.spec.ports else None


def _named_port(pod: Pod, name: str, protocol: str) -> int | None:
    if name.isdigit():
        return int(name)
    for container in pod.spec.containers:
        for port in container.ports:
            if port.name == name and port.protocol == protocol:
                return port.container_port
    return None


def _ports_key(ports: list[Manifest]) -> str:
    return json.dumps(ports, sort_keys=True)


def _metadata(service: Service, name: str, labels: dict[str, str]) -> Manifest:
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(SERVICES, service.metadata)],
    }
