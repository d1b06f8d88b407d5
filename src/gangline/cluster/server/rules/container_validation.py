"""Rules of containers: names, images, ports, environment, mounts, probes and resources.

Source: validation of core/v1 in kube-apiserver; messages keep its words.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gangline.cluster.server.rules.field_rules import (
    duplicate,
    forbidden,
    invalid,
    label,
    not_supported,
    qualified_name,
    required,
    shown,
)
from gangline.errors import FieldError
from gangline.units import parse_quantity

PORT_MAX = 65535
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("SCTP", "TCP", "UDP")
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "storage")


def containers(spec: dict[str, Any], path: str, volumes: set[str]) -> list[FieldError]:
    """Return every rule that the containers of a pod break, init containers included.

    Args:
        spec: the pod's spec.
        path: its field path.
        volumes: names of the pod's volumes.
    """
    errors = []
    if not spec.get("containers"):
        errors.append(required(f"{path}.containers"))
    names: set[str] = set()
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or []):
            place = f"{path}.{key}[{index}]"
            errors += _container(container, place, volumes)
            name = container.get("name")
            if name and name in names:
                errors.append(duplicate(f"{place}.name", name))
            names.add(name or "")
    return errors


def ephemeral_containers(
    given: list[dict[str, Any]], path: str, volumes: set[str], taken: list[str]
) -> list[FieldError]:
    """Return every rule that containers added to a pod break; ``taken`` are the names of its others."""
    errors = []
    names = set(taken)
    for index, container in enumerate(given):
        place = f"{path}[{index}]"
        errors += _container(container, place, volumes)
        errors += [
            forbidden(f"{place}.volumeMounts[{number}].{key}", "cannot be set for an Ephemeral Container")
            for number, mount in enumerate(container.get("volumeMounts") or [])
            for key in ("subPath", "subPathExpr")
            if mount.get(key)
        ]
        name = container.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
    return errors


def _container(container: dict[str, Any], path: str, volumes: set[str]) -> list[FieldError]:
    errors = []
    name, image = container.get("name") or "", container.get("image") or ""
    errors += label(f"{path}.name", name) if name else [required(f"{path}.name")]
    if not image:
        errors.append(required(f"{path}.image"))
    elif image != image.strip():
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    policy = container.get("imagePullPolicy")
    if policy and policy not in PULL_POLICIES:
        errors.append(not_supported(f"{path}.imagePullPolicy", policy, PULL_POLICIES))
    errors += _ports(container.get("ports") or [], f"{path}.ports")
    errors += _env(container.get("env") or [], f"{path}.env")
    errors += _env_from(container.get("envFrom") or [], f"{path}.envFrom")
    errors += _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(key):
            errors += _probe(container[key], f"{path}.{key}")
    errors += _resources(container.get("resources") or {}, f"{path}.resources")
    return errors


def port_number(value: int, path: str) -> list[FieldError]:
    """Return what is wrong with a port number."""
    if 1 <= value <= PORT_MAX:
        return []
    return [invalid(path, value, f"must be between 1 and {PORT_MAX}, inclusive")]


def _ports(ports: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        name = port.get("name")
        if name:
            if name in names:
                errors.append(duplicate(f"{place}.name", name))
            names.add(name)
        if not port.get("containerPort"):
            errors.append(required(f"{place}.containerPort"))
        else:
            errors += port_number(port["containerPort"], f"{place}.containerPort")
        if port.get("hostPort"):
            errors += port_number(port["hostPort"], f"{place}.hostPort")
        protocol = port.get("protocol")
        if protocol and protocol not in PROTOCOLS:
            errors.append(not_supported(f"{place}.protocol", protocol, PROTOCOLS))
    return errors


def _env(env: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for index, entry in enumerate(env):
        place = f"{path}[{index}]"
        name = entry.get("name") or ""
        if not name:
            errors.append(required(f"{place}.name"))
        elif "=" in name or not name.isprintable():
            words = (
                "a valid environment variable name must consist only of printable characters other than '='"
            )
            errors.append(invalid(f"{place}.name", name, words))
        source = entry.get("valueFrom")
        if source is None:
            continue
        place = f"{place}.valueFrom"
        found = [key for key in ENV_SOURCES if source.get(key) is not None]
        if entry.get("value"):
            errors.append(invalid(place, "", "may not be specified when `value` is not empty"))
        elif len(found) != 1:
            listed = ", ".join(f"`{key}`" for key in ENV_SOURCES[:-1])
            words = "may not have more than one field specified at a time"
            errors.append(invalid(place, "", words if found else f"must specify one of: {listed}"))
        for key in found:
            needed = {"fieldRef": "fieldPath", "resourceFieldRef": "resource"}.get(key, "key")
            if not source[key].get(needed):
                errors.append(required(f"{place}.{key}.{needed}"))
    return errors


def _env_from(sources: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for index, source in enumerate(sources):
        found = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
        if len(found) != 1:
            words = "may not have more than one field specified at a time"
            missing = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(f"{path}[{index}]", "", words if found else missing))
        for key in found:
            if not source[key].get("name"):
                errors.append(required(f"{path}[{index}].{key}.name"))
    return errors


def _mounts(mounts: list[dict[str, Any]], path: str, volumes: set[str]) -> list[FieldError]:
    errors = []
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{path}[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{place}.name"))
        elif name not in volumes:
            errors.append(
                FieldError("NotFound", f"{place}.name", "no volume of the pod has this name", shown(name))
            )
        if not target:
            errors.append(required(f"{place}.mountPath"))
        elif target in places:
            errors.append(invalid(f"{place}.mountPath", target, "must be unique"))
        places.add(target)
        inside = mount.get("subPath") or ""
        if inside.startswith("/"):
            errors.append(invalid(f"{place}.subPath", inside, "must be a relative path"))
        if ".." in inside.split("/"):
            errors.append(invalid(f"{place}.subPath", inside, "must not contain '..'"))
        if mount.get("subPathExpr") and inside:
            words = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(f"{place}.subPathExpr", mount["subPathExpr"], words))
    return errors


def _probe(probe: dict[str, Any], path: str) -> list[FieldError]:
    errors = []
    found = [key for key in HANDLERS if probe.get(key) is not None]
    if not found:
        errors.append(required(path, "must specify a handler type"))
    errors += [forbidden(f"{path}.{key}", "may not specify more than 1 handler type") for key in found[1:]]
    if found == ["grpc"]:
        errors += port_number(probe["grpc"].get("port") or 0, f"{path}.grpc.port")
    for key, value in probe.items():
        if isinstance(value, int) and value < 0:
            errors.append(invalid(f"{path}.{key}", value, "must be greater than or equal to 0"))
    return errors


def _resources(resources: dict[str, Any], path: str) -> list[FieldError]:
    errors = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for key, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            errors += _amount(name, amount, f"{path}.{key}[{name}]")
    for name, amount in requests.items():
        if name not in limits:
            if is_extended(name):
                errors.append(
                    required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                )
            continue
        have, most = _decimal(amount), _decimal(limits[name])
        if is_extended(name) and have != most:
            words = f"must be equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{path}.requests", amount, words))
        elif have > most:
            words = f"must be less than or equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{path}.requests", amount, words))
    return errors


def is_extended(name: str) -> bool:
    """Return whether a resource is one that cannot be overcommitted, such as ``nvidia.com/gpu``."""
    return "/" in name and not name.startswith("kubernetes.io/") and "requests." not in name


def _amount(name: str, amount: Any, path: str) -> list[FieldError]:
    value = _decimal(amount)
    if value < 0:
        return [invalid(path, amount, "must be greater than or equal to 0")]
    if is_extended(name):
        if value != value.to_integral_value():
            return [invalid(path, amount, "must be an integer")]
        return qualified_name(path, name)
    if name not in _PLAIN_RESOURCES and not name.startswith(("hugepages-", "kubernetes.io/")):
        words = "must be a standard resource type or fully qualified"
        return [invalid(path, name, words)]
    return []


def _decimal(amount: Any) -> Decimal:
    return parse_quantity(amount)
