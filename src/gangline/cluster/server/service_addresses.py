"""Addresses of Services, and ports of the nodes for the types ``NodePort`` and ``LoadBalancer``. Pure.

Source: Kubernetes documentation, "Service", type ``NodePort``; messages keep kube-apiserver's words.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gangline.cluster.api_access import SERVICE_SUBNET
from gangline.cluster.server.rules.field_rules import forbidden, invalid
from gangline.cluster.server.status_errors import internal_error
from gangline.errors import FieldError

SERVICES = ipaddress.IPv4Network(SERVICE_SUBNET)
FIRST, LAST = 30000, 32767
"""``--service-node-port-range`` of kube-apiserver, as it is without the option."""
TYPES = ("NodePort", "LoadBalancer")


def free_address(others: Iterable[Mapping[str, Any]], uid: str) -> str:
    """Return an address that no other service's ``spec`` has; where to begin looking follows from the uid.

    Raises:
        StatusError: 500, there is none.
    """
    taken = {other.get("clusterIP") for other in others}
    start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:2], "big")
    for step in range(SERVICES.num_addresses):
        place = (start + step) % SERVICES.num_addresses
        address = str(SERVICES[place])
        if 0 < place % 256 < 255 and address not in taken:
            return address
    raise internal_error("no address is left for another service")


def taken_address(
    spec: Mapping[str, Any], before: Mapping[str, Any], others: Iterable[Mapping[str, Any]]
) -> list[FieldError]:
    """Return what is wrong with the address that a Service asks for: another one has it."""
    address = spec.get("clusterIP")
    if address in (None, "", "None", before.get("clusterIP")):
        return []
    if all(other.get("clusterIP") != address for other in others):
        return []
    words = f"failed to allocate IP {address}: provided IP is already allocated"
    return [invalid("spec.clusterIPs[0]", address, words)]


def has_node_ports(spec: Mapping[str, Any]) -> bool:
    """Return whether the ports of a Service get ports of the nodes without asking for them."""
    return spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def ports_of(spec: Mapping[str, Any]) -> set[int]:
    """Return the ports of the nodes that a Service has."""
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


def with_node_ports(
    spec: Mapping[str, Any], before: Mapping[str, Any], taken: Collection[int], seed: str
) -> tuple[list[dict[str, Any]], list[FieldError]]:
    """Return the ports of a Service with those of the nodes, and what is wrong with those asked for.

    Args:
        spec: of the Service, with defaults.
        before: its state before an update, empty for a new one: what it had, and does not name, it keeps.
        taken: ports of all other Services.
        seed: its uid, from which the place to begin looking follows.
    """
    ports = [dict(port) for port in spec.get("ports") or ()]
    had = {_place(port): port.get("nodePort") for port in before.get("ports") or ()}
    errors: list[FieldError] = []
    for index, port in enumerate(ports):
        number, path = port.get("nodePort"), f"spec.ports[{index}].nodePort"
        if spec.get("type") not in TYPES:
            if number and number == had.get(_place(port)):
                del port["nodePort"]  # given back with the type
            elif number:
                errors.append(forbidden(path, f"may not be used when `type` is '{spec.get('type')}'"))
        elif not number and has_node_ports(spec) and before.get("type") in TYPES and had.get(_place(port)):
            port["nodePort"] = had[_place(port)]
        elif number and not FIRST <= number <= LAST:
            words = f"provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}"
            errors.append(invalid(path, number, words))
        elif number and number in taken:
            errors.append(invalid(path, number, "provided port is already allocated"))
    if has_node_ports(spec) and not errors:
        errors += _fill(ports, taken, seed)
    return ports, errors


def _fill(ports: list[dict[str, Any]], taken: Collection[int], seed: str) -> list[FieldError]:
    """Give each port that has none of the nodes' one that is free."""
    used = {*taken, *ports_of({"ports": ports})}
    count = LAST - FIRST + 1
    begin = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:2], "big")
    free = (FIRST + (begin + step) % count for step in range(count))
    for index, port in enumerate(ports):
        if not port.get("nodePort"):
            found = next((number for number in free if number not in used), None)
            if found is None:
                words = "failed to allocate a nodePort: range is full"
                return [invalid(f"spec.ports[{index}].nodePort", 0, words)]
            port["nodePort"] = found
    return []


def _place(port: Mapping[str, Any]) -> tuple[Any, Any]:
    return port.get("protocol") or "TCP", port.get("port")
