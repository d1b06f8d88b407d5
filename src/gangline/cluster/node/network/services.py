"""Services as the network of the pods sees them: ``(Services, EndpointSlices) -> values``. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.api.core import EndpointSlice, Service

SERVICE_NAME_LABEL = "kubernetes.io/service-name"

Target = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a service.

    Attributes:
        name: of the port, may be empty.
        protocol: ``tcp``, ``udp`` or ``sctp``.
        number: at the service's address.
        node_port: at the node's address, 0 for none.
        targets: address and port of the pods that are ready, sorted.
    """

    name: str
    protocol: str
    number: int
    node_port: int = 0
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterService:
    """One service.

    Attributes:
        address: of the cluster; empty for a headless one and for one of type ``ExternalName``.
        external_name: where its name leads, for the type ``ExternalName``.
        keeps_client: whether connections from one address go to one pod.
        ports: all of them.
        pods: address and own name, which may be empty, of each pod that is ready, sorted.
    """

    namespace: str
    name: str
    address: str = ""
    external_name: str = ""
    keeps_client: bool = False
    ports: tuple[ServicePort, ...] = ()
    pods: tuple[tuple[str, str], ...] = ()


def slice_key(piece: EndpointSlice) -> str:
    """Return ``namespace/name`` of the service of a slice."""
    return f"{piece.metadata.namespace}/{piece.metadata.labels.get(SERVICE_NAME_LABEL, '')}"


def cluster_services(services: Iterable[Service], slices: Iterable[EndpointSlice]) -> list[ClusterService]:
    """Return all services with their pods, sorted by namespace and name. Cost: O(endpoints)."""
    of_service: dict[str, list[EndpointSlice]] = {}
    for piece in slices:
        if piece.address_type == "IPv4":
            of_service.setdefault(slice_key(piece), []).append(piece)
    ordered = sorted(services, key=lambda service: service.metadata.key)
    return [_service(service, of_service) for service in ordered]


def _service(service: Service, of_service: Mapping[str, list[EndpointSlice]]) -> ClusterService:
    spec, key = service.spec, service.metadata.key
    if spec.type == "ExternalName":
        return ClusterService(
            service.metadata.namespace, service.metadata.name, external_name=spec.external_name.rstrip(".")
        )
    pods: set[tuple[str, str]] = set()
    targets: dict[tuple[str, str], set[Target]] = {}
    for piece in of_service.get(key, ()):
        for endpoint in piece.endpoints or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue  # unknown counts as ready
            address = next(iter(endpoint.get("addresses") or ()), "")
            if not _is_of_a_pod(address):
                continue
            pods.add((address, endpoint.get("hostname") or ""))
            for port in piece.ports or ():
                if _is_port(number := port.get("port") or 0):
                    named = (port.get("name") or "", (port.get("protocol") or "TCP").lower())
                    targets.setdefault(named, set()).add((address, number))
    ports = []
    for port in spec.ports:
        name, protocol = port.get("name") or "", (port.get("protocol") or "TCP").lower()
        found = tuple(sorted(targets.get((name, protocol), ())))
        node_port = port.get("nodePort") or 0
        ports.append(
            ServicePort(name, protocol, port["port"], node_port if _is_port(node_port) else 0, found)
        )
    return ClusterService(
        service.metadata.namespace,
        service.metadata.name,
        address="" if spec.cluster_ip == "None" else spec.cluster_ip,
        keeps_client=spec.session_affinity == "ClientIP",
        ports=tuple(ports),
        pods=tuple(sorted(pods)),
    )


def _is_of_a_pod(address: str) -> bool:
    """Return whether connections may be led to an address; whoever may write slices may write any."""
    try:
        found = ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified)


def _is_port(number: int) -> bool:
    return 0 < number < 1 << 16
