"""The environment of a container: order, ``envFrom``, references and ``$(VAR)`` expansion. Pure.

Source: Kubernetes API reference (EnvVar, EnvFromSource) and the kubelet's order: services, envFrom, env.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gangline.api.core import (
    ConfigMap,
    Container,
    EnvVarSource,
    Pod,
    Secret,
    Service,
)
from gangline.api.volumes import HostPathVolume, ObjectFieldSelector, ResourceFieldSelector
from gangline.cluster.node.pods.contents import config_map_contents, secret_contents
from gangline.units import parse_quantity

_REFERENCE = re.compile(r"\$(\$|\(([^()$]*)\))")
_NAMED = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")
# any-key, 1.key: printable ASCII without "=", as of Kubernetes 1.34
_VARIABLE_NAME = re.compile(r"^[ -<>-~]+$")


class ConfigError(Exception):
    """Something that a container refers to does not exist (yet); it is tried again when objects change."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the downward API can tell that is not in the pod's specification.

    Attributes:
        pod_ip, host_ip: addresses.
        allocatable: of the node, as written; stands in for limits that are not set.
    """

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Lookup:
    """How to find the objects that a pod refers to; None for what is not there; why a claim has no folder."""

    config_map: Callable[[str], ConfigMap | None]
    secret: Callable[[str], Secret | None]
    claim: Callable[[str], HostPathVolume | str] = lambda name: f"claim {name} is not known"
    services: Callable[[], Iterable[Service]] = tuple
    """Those of the namespace."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with ``$(NAME)`` replaced; ``$$`` is a dollar sign, unknown names stay as written.

    Example:
        >>> expand("$(A)-$$(A)-$(B)", {"A": "1"})
        '1-$(A)-$(B)'
    """

    def replace(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return variables.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replace, text)


def service_env(services: Iterable[Service]) -> dict[str, str]:
    """Return the variables that name services with an address, as Docker's links did.

    Source: Kubernetes documentation, "Service", environment variables.
    """
    env = {}
    for service in services:
        address, ports = service.spec.cluster_ip, service.spec.ports
        if not ports or address in ("", "None"):
            continue
        prefix = service.metadata.name.upper().replace("-", "_")
        env[f"{prefix}_SERVICE_HOST"] = address
        env[f"{prefix}_SERVICE_PORT"] = str(ports[0]["port"])
        for index, port in enumerate(ports):
            number, protocol = port["port"], port.get("protocol", "TCP")
            if port.get("name"):
                env[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(number)
            url = f"{protocol.lower()}://{address}:{number}"
            if index == 0:
                env[f"{prefix}_PORT"] = url
            link = f"{prefix}_PORT_{number}_{protocol}"
            env |= {
                link: url,
                f"{link}_PROTO": protocol.lower(),
                f"{link}_PORT": str(number),
                f"{link}_ADDR": address,
            }
    return env


def build_env(
    pod: Pod, container: Container, facts: PodFacts, lookup: Lookup, defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a container: ``defaults``, then ``envFrom`` in order, then ``env``.

    Raises:
        ConfigError: a config map, a secret or a key of one is missing and not optional.
    """
    known = dict(defaults)
    for source in container.env_from:
        known.update(_from_object(source.config_map_ref, "config map", source.prefix, lookup))
        known.update(_from_object(source.secret_ref, "secret", source.prefix, lookup))
    for variable in container.env:
        if variable.value_from is None:
            known[variable.name] = expand(variable.value, known)
            continue
        value = _value_from(pod, container, variable.value_from, facts, lookup)
        if value is not None:
            known[variable.name] = value
    return known


def _from_object(reference: object, kind: str, prefix: str, lookup: Lookup) -> dict[str, str]:
    name = getattr(reference, "name", "")
    if not name:
        return {}
    contents = _contents(kind, name, lookup)
    if contents is None:
        if getattr(reference, "optional", False):
            return {}
        raise ConfigError(f'{kind} "{name}" not found')
    pairs = ((prefix + key, value) for key, value in contents.items())
    return {key: value.decode("utf-8", "replace") for key, value in pairs if _VARIABLE_NAME.match(key)}


def _contents(kind: str, name: str, lookup: Lookup) -> dict[str, bytes] | None:
    if kind == "secret":
        secret = lookup.secret(name)
        return None if secret is None else secret_contents(secret)
    config_map = lookup.config_map(name)
    return None if config_map is None else config_map_contents(config_map)


def _value_from(
    pod: Pod, container: Container, source: EnvVarSource, facts: PodFacts, lookup: Lookup
) -> str | None:
    if source.field_ref is not None:
        return field_value(pod, source.field_ref, facts)
    if source.resource_field_ref is not None:
        return resource_value(pod, source.resource_field_ref, facts, container)
    for selector, kind in ((source.config_map_key_ref, "config map"), (source.secret_key_ref, "secret")):
        if selector is None:
            continue
        contents = _contents(kind, selector.name, lookup)
        if contents is not None and selector.key in contents:
            return contents[selector.key].decode("utf-8", "replace")
        if selector.optional:
            return None
        if contents is None:
            raise ConfigError(f'{kind} "{selector.name}" not found')
        raise ConfigError(
            f"couldn't find key {selector.key} in {kind} {pod.metadata.namespace}/{selector.name}"
        )
    return None


def field_value(pod: Pod, selector: ObjectFieldSelector, facts: PodFacts) -> str:
    """Return one field of the pod as the downward API gives it.

    Raises:
        ConfigError: the downward API knows no such field.
    """
    path = selector.field_path
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
        "metadata.labels": _listed(pod.metadata.labels),
        "metadata.annotations": _listed(pod.metadata.annotations),
    }
    if path in fields:
        return fields[path]
    if match := _NAMED.match(path):
        return getattr(pod.metadata, match.group(1)).get(match.group(2), "")  # type: ignore[no-any-return]
    raise ConfigError(f"field path `{path}` is not supported by the downward API")


def _listed(pairs: Mapping[str, str]) -> str:
    """Return ``key="value"`` lines, sorted, as in downward API files."""
    return "\n".join(f'{key}="{_quoted(pairs[key])}"' for key in sorted(pairs))


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(
    pod: Pod, selector: ResourceFieldSelector, facts: PodFacts, container: Container | None = None
) -> str:
    """Return a request or limit divided by the divisor and rounded up; the node's where none is set.

    Raises:
        ConfigError: no such container or resource.
    """
    if selector.container_name:
        everyone = (*pod.spec.containers, *pod.spec.init_containers)
        container = next((c for c in everyone if c.name == selector.container_name), None)
    if container is None:
        raise ConfigError(f"container `{selector.container_name}` of a resourceFieldRef does not exist")
    kind, _, name = selector.resource.partition(".")
    if kind not in ("limits", "requests") or not name:
        raise ConfigError(f"resource `{selector.resource}` is not supported by the downward API")
    limits, requests = container.resources.limits, container.resources.requests
    found = limits.get(name) if kind == "limits" else requests.get(name, limits.get(name))
    if found is None:
        found = facts.allocatable.get(name, 0) if kind == "limits" else 0
    divisor = parse_quantity(selector.divisor or 0) or Decimal(1)
    return str(math.ceil(parse_quantity(found) / divisor))
