"""Rules of the smaller kinds: services, config maps, secrets, events, leases, priority classes.

Values have their right types here. Source: validation of the kinds in kube-apiserver; messages keep its
words.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from gangline.cluster.api_access import SERVICE_SUBNET
from gangline.cluster.server.rules.container_validation import PROTOCOLS, port_number
from gangline.cluster.server.rules.field_rules import (
    config_key,
    duplicate,
    forbidden,
    immutable,
    invalid,
    label,
    label_map,
    not_supported,
    required,
    subdomain,
)
from gangline.errors import FieldError
from gangline.workloads.cel import NotCel, NotServed, compile_rule

DATA_MAX_BYTES = 1024 * 1024
SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
API = ("default", "kubernetes")
"""Namespace and name of the service of the API server itself, whose address is where that listens."""
_SERVICES = ipaddress.ip_network(SERVICE_SUBNET)
_OUTSIDE_RULE = (
    "failed to allocate IP {}: the provided IP is not in the valid range. "
    f"The range of valid IPs is {SERVICE_SUBNET}"
)
ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_LOCAL_GROUPS = ipaddress.ip_network("224.0.0.0/24")
AFFINITIES = ("ClientIP", "None")
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
PRIORITY_MAX = 1_000_000_000
"""Highest priority that users may give; higher ones are the system's."""
SYSTEM_PRIORITY_CLASSES = ("system-cluster-critical", "system-node-critical")

_NEEDED_OF_SECRETS = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
}
_IMMUTABLE_RULE = "field is immutable when `immutable` is set"


def service(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a service breaks. Cost: O(ports)."""
    spec = obj.get("spec") or {}
    errors = []
    kind = spec.get("type") or "ClusterIP"
    address = spec.get("clusterIP") or ""
    ports = spec.get("ports") or []
    if kind not in SERVICE_TYPES:
        errors.append(not_supported("spec.type", kind, SERVICE_TYPES))
    if kind == "ExternalName":
        if not spec.get("externalName"):
            errors.append(required("spec.externalName"))
        else:
            errors += subdomain("spec.externalName", spec["externalName"].removesuffix("."))
    elif not ports and address != "None":
        errors.append(required("spec.ports"))
    if address not in ("", "None"):
        try:
            parsed = ipaddress.ip_address(address)
            if parsed not in _SERVICES and (obj["metadata"].get("namespace"), obj["metadata"]["name"]) != API:
                errors.append(invalid("spec.clusterIPs[0]", address, _OUTSIDE_RULE.format(address)))
        except ValueError:
            errors.append(invalid("spec.clusterIPs[0]", address, "must be a valid IP address"))
    if spec.get("sessionAffinity") and spec["sessionAffinity"] not in AFFINITIES:
        errors.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], AFFINITIES))
    errors += label_map("spec.selector", spec.get("selector"))
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        errors += _service_port(port, f"spec.ports[{index}]", len(ports) > 1)
        name = port.get("name")
        if name and name in names:
            errors.append(duplicate(f"spec.ports[{index}].name", name))
        names.add(name or "")
        number = (port.get("port"), port.get("protocol"))
        if number in numbers:
            found = {"port": number[0], "protocol": number[1]}
            errors.append(duplicate(f"spec.ports[{index}]", found))
        numbers.add(number)
    return errors


def _service_port(port: dict[str, Any], path: str, name_needed: bool) -> list[FieldError]:
    errors = []
    if port.get("name"):
        errors += label(f"{path}.name", port["name"])
    elif name_needed:
        errors.append(required(f"{path}.name"))
    if port.get("port") is None:
        errors.append(required(f"{path}.port"))
    else:
        errors += port_number(port["port"], f"{path}.port")
    protocol = port.get("protocol")
    if protocol and protocol not in PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, PROTOCOLS))
    target = port.get("targetPort")
    if isinstance(target, int) and target:
        errors += port_number(target, f"{path}.targetPort")
    return errors


def endpoints(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that endpoints break. Cost: O(addresses). Loopback as for slices."""
    errors: list[FieldError] = []
    for index, subset in enumerate(obj.get("subsets") or []):
        path, ports = f"subsets[{index}]", subset.get("ports") or []
        for place, port in enumerate(ports):
            errors += _service_port(port, f"{path}.ports[{place}]", len(ports) > 1)
        named = [(name, subset.get(name) or []) for name in ("addresses", "notReadyAddresses")]
        if not any(addresses for _, addresses in named):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name, addresses in named:
            for place, address in enumerate(addresses):
                found = address.get("ip") or ""
                kind = "IPv6" if ":" in found else "IPv4"
                errors += _endpoint_address(f"{path}.{name}[{place}].ip", found, kind)
    return errors


def endpoint_slice(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that an endpoint slice breaks. Cost: O(addresses).

    Loopback is taken, other than by Kubernetes: pods on the machine's own network have such addresses.
    """
    kind = obj.get("addressType") or ""
    if kind not in ADDRESS_TYPES:
        return [not_supported("addressType", kind, ADDRESS_TYPES) if kind else required("addressType")]
    errors: list[FieldError] = []
    for index, endpoint in enumerate(obj.get("endpoints") or []):
        path = f"endpoints[{index}]"
        if not endpoint.get("addresses"):
            errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
        for place, address in enumerate(endpoint.get("addresses") or []):
            errors += _endpoint_address(f"{path}.addresses[{place}]", address, kind)
        if endpoint.get("hostname"):
            errors += label(f"{path}.hostname", endpoint["hostname"])
    for index, port in enumerate(obj.get("ports") or []):
        if port.get("protocol") not in PROTOCOLS:
            errors.append(not_supported(f"ports[{index}].protocol", port.get("protocol"), PROTOCOLS))
    return errors


def _endpoint_address(path: str, address: str, kind: str) -> list[FieldError]:
    if kind == "FQDN":
        return subdomain(path, address)
    try:
        found = (ipaddress.IPv4Address if kind == "IPv4" else ipaddress.IPv6Address)(address)
    except ValueError:
        return [invalid(path, address, f"must be a valid {kind} address")]
    return [
        invalid(path, address, f"may not be {words}")
        for is_broken, words in (
            (found.is_unspecified, "unspecified (0.0.0.0 or ::)"),
            (found.is_link_local, "in the link-local range (169.254.0.0/16, fe80::/10)"),
            (found in _LOCAL_GROUPS, "in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        )
        if is_broken
    ]


def service_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a service changes and may not: its cluster address."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    address, address_before = spec.get("clusterIP") or "", before.get("clusterIP") or ""
    if "ExternalName" in (spec.get("type"), before.get("type")) or not address_before:
        return []
    if address != address_before:
        return [invalid("spec.clusterIPs[0]", address, "may not change once set")]
    return []


def config_map(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a config map breaks. Cost: O(size)."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    errors = []
    for key in data:
        errors += config_key(f"data[{key}]", key)
    for key in binary:
        errors += config_key(f"binaryData[{key}]", key)
        if key in data:
            errors.append(invalid(f"binaryData[{key}]", key, "duplicate of key present in data"))
    size = sum(len(key) + len(value.encode()) for key, value in data.items() if value)
    size += sum(len(key) + len(value) * 3 // 4 for key, value in binary.items() if value)
    return errors + _size(size)


def _size(size: int) -> list[FieldError]:
    if size <= DATA_MAX_BYTES:
        return []
    return [FieldError("TooLong", "data", f"may not be more than {DATA_MAX_BYTES} bytes")]


def config_map_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of an immutable config map changes."""
    return _frozen(obj, old, ("data", "binaryData"))


def _frozen(obj: dict[str, Any], old: dict[str, Any], keys: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    if not obj.get("immutable"):
        errors.append(forbidden("immutable", _IMMUTABLE_RULE))
    return errors + [
        forbidden(key, _IMMUTABLE_RULE) for key in keys if (obj.get(key) or {}) != (old.get(key) or {})
    ]


def secret(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a secret breaks. Cost: O(size)."""
    data = obj.get("data") or {}
    errors = []
    for key in data:
        errors += config_key(f"data[{key}]", key)
    for key in _NEEDED_OF_SECRETS.get(obj.get("type") or "", ()):
        if key not in data:
            errors.append(required(f"data[{key}]"))
    return errors + _size(sum(len(value or "") * 3 // 4 for value in data.values()))


def secret_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a secret changes and may not: its type, and all data of an immutable one."""
    errors = _frozen(obj, old, ("data",))
    if obj.get("type") != old.get("type"):
        errors.append(immutable("type", obj.get("type")))
    return errors


def event(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that an event breaks: it lies in the namespace of what it is about."""
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    if about and about != namespace:
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    if not about and namespace not in ("", "default", "kube-system"):
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def lease(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a lease breaks."""
    spec = obj.get("spec") or {}
    errors = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


def priority_class(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a priority class breaks."""
    name, value = (obj.get("metadata") or {}).get("name") or "", obj.get("value") or 0
    errors = []
    if name.startswith("system-"):
        if name not in SYSTEM_PRIORITY_CLASSES:
            words = "priority class names with 'system-' prefix are reserved for system use only"
            errors.append(forbidden("metadata.name", words))
    elif value > PRIORITY_MAX:
        words = f"maximum allowed value of a user defined priority is {PRIORITY_MAX}"
        errors.append(forbidden("value", words))
    policy = obj.get("preemptionPolicy")
    if policy and policy not in PREEMPTION_POLICIES:
        errors.append(not_supported("preemptionPolicy", policy, PREEMPTION_POLICIES))
    return errors


def priority_class_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a priority class changes and may not: its value and its preemption."""
    return [
        forbidden(key, "may not be changed in an update.")
        for key in ("value", "preemptionPolicy")
        if obj.get(key) != old.get(key)
    ]


def webhook_configuration(obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for each match condition that is no CEL; one beyond our part of it may be right."""
    errors = []
    for index, webhook in enumerate(obj.get("webhooks") or []):
        for place, condition in enumerate(webhook.get("matchConditions") or []):
            text = condition.get("expression") or ""
            try:
                compile_rule(text)
            except NotCel as error:
                path = f"webhooks[{index}].matchConditions[{place}].expression"
                errors.append(invalid(path, text, f"compilation failed: {error}"))
            except NotServed:
                continue
    return errors
