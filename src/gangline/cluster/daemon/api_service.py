"""The Service ``kubernetes`` in ``default``, by which programs in pods find the API server."""

from __future__ import annotations

import ipaddress
from typing import Any

from gangline.api.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource

NAME = "kubernetes"
HTTPS_PORT = 443


def api_service(address: str, port: int) -> list[tuple[Resource, dict[str, Any]]]:
    """Return the Service and what it leads to.

    Its address is the server's own, and so leads there on the server's own port without any forwarding; the
    port of the Service is that of every cluster, forwarded by the rules of services. Where pods share the
    machine's network the address is loopback, which Kubernetes lets no Endpoints hold, and nothing forwards.

    Args:
        address: at which pods reach the API server.
        port: of HTTPS.
    """
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    metadata = {"name": NAME, "namespace": "default"}
    labels = {"component": "apiserver", "provider": "kubernetes"}
    is_loopback = ipaddress.ip_address(address).is_loopback
    served = {**ports[0], "port": port if is_loopback else HTTPS_PORT, "targetPort": port}
    spec = {"type": "ClusterIP", "clusterIP": address, "ports": [served]}
    service = _object(SERVICES, {**metadata, "labels": labels}, spec=spec)
    if is_loopback:
        return [(SERVICES, service)]
    of_service = {"kubernetes.io/service-name": NAME}
    subsets = [{"addresses": [{"ip": address}], "ports": ports}]
    endpoints = [{"addresses": [address], "conditions": {"ready": True}}]
    parts = {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
    skipped = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return [
        (SERVICES, service),
        (ENDPOINTS, _object(ENDPOINTS, {**metadata, "labels": skipped}, subsets=subsets)),
        (ENDPOINT_SLICES, _object(ENDPOINT_SLICES, {**metadata, "labels": of_service}, **parts)),
    ]


def _object(resource: Resource, metadata: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
