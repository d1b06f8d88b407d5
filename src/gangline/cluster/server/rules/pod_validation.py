"""Rules of a pod's spec, for pods and for the templates of jobs, and what may change of a pod after its
creation.

Values have their right types here (``field_types`` ran first) and defaults are filled in.
Source: validation of core/v1 in kube-apiserver; messages keep its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gangline.cluster.server.rules.container_validation import containers, ephemeral_containers
from gangline.cluster.server.rules.field_rules import (
    SUBDOMAIN_MAX,
    duplicate,
    forbidden,
    invalid,
    label,
    label_map,
    label_value,
    not_supported,
    qualified_name,
    required,
    subdomain,
)
from gangline.cluster.server.rules.pod_fields import CONTAINER, refusals
from gangline.errors import FieldError

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
FILE_MODE_MAX = 0o777
EPHEMERAL = "ephemeralcontainers"
"""The subresource that adds containers to a pod."""
EPHEMERAL_FIELD = "ephemeralContainers"
_EPHEMERAL_FIELDS = frozenset(
    "name image command args workingDir envFrom env volumeMounts terminationMessagePath imagePullPolicy tty "
    "terminationMessagePolicy securityContext stdin stdinOnce targetContainerName".split()
)
# net.ipv4.tcp_syncookies, net/ipv4/ip_forward
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")

_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NEEDED_OF_VOLUMES = {
    "hostPath": "path",
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "nfs": "path",
    "csi": "driver",
}


def pod_spec(spec: dict[str, Any], path: str) -> list[FieldError]:
    """Return every rule that the spec of a pod or template breaks. Cost: O(containers x mounts)."""
    errors = refusals(spec, path)
    volume_names = {volume.get("name", "") for volume in spec.get("volumes") or []}
    errors += _volumes(spec.get("volumes") or [], f"{path}.volumes")
    errors += containers(spec, path, volume_names)
    policy = spec.get("restartPolicy")
    if policy and policy not in RESTART_POLICIES:
        errors.append(not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES))
    errors += _dns(spec, path)
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            errors += label(f"{path}.{key}", spec[key])
    for key in ("nodeName", "serviceAccountName", "priorityClassName", "runtimeClassName"):
        if spec.get(key):
            errors += subdomain(f"{path}.{key}", spec[key])
    errors += label_map(f"{path}.nodeSelector", spec.get("nodeSelector"))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        errors.append(
            invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
        )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        errors.append(
            invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
        )
    errors += _tolerations(spec.get("tolerations") or [], f"{path}.tolerations")
    errors += _spread(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    errors += _sysctls((spec.get("securityContext") or {}).get("sysctls") or [], f"{path}.securityContext")
    errors += _gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    return errors


def _dns(spec: dict[str, Any], path: str) -> list[FieldError]:
    policy = spec.get("dnsPolicy")
    if policy and policy not in DNS_POLICIES:
        return [not_supported(f"{path}.dnsPolicy", policy, DNS_POLICIES)]
    if policy == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        words = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(f"{path}.dnsConfig.nameservers", words)]
    return []


def _volumes(volumes: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        name = volume.get("name") or ""
        if not name:
            errors.append(required(f"{place}.name"))
        else:
            errors += label(f"{place}.name", name)
            if name in names:
                errors.append(duplicate(f"{place}.name", name))
            names.add(name)
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if not sources:
            errors.append(required(place, "must specify a volume type"))
        for key in sources[1:]:
            errors.append(forbidden(f"{place}.{key}", "may not specify more than 1 volume type"))
        for key in sources[:1]:
            errors += _volume_source(volume[key], key, f"{place}.{key}")
    return errors


def _volume_source(source: dict[str, Any], kind: str, path: str) -> list[FieldError]:
    errors = []
    needed = _NEEDED_OF_VOLUMES.get(kind)
    if needed and not source.get(needed):
        errors.append(required(f"{path}.{needed}"))
    mode = source.get("defaultMode")
    if mode is not None:
        errors += _mode(mode, f"{path}.defaultMode")
    for index, item in enumerate(source.get("items") or []):
        place = f"{path}.items[{index}]"
        if kind in ("configMap", "secret") and not item.get("key"):
            errors.append(required(f"{place}.key"))
        if not item.get("path"):
            errors.append(required(f"{place}.path"))
        elif item["path"].startswith("/") or ".." in item["path"].split("/"):
            errors.append(invalid(f"{place}.path", item["path"], "must be a relative path without '..'"))
        if item.get("mode") is not None:
            errors += _mode(item["mode"], f"{place}.mode")
    return errors


def _mode(mode: int, path: str) -> list[FieldError]:
    if 0 <= mode <= FILE_MODE_MAX:
        return []
    return [invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _tolerations(tolerations: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for index, toleration in enumerate(tolerations):
        place = f"{path}[{index}]"
        key, operator, effect = (toleration.get(name) or "" for name in ("key", "operator", "effect"))
        if key:
            errors += qualified_name(f"{place}.key", key)
        elif operator != "Exists":
            words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid(f"{place}.operator", operator, words))
        if operator not in ("", "Equal", "Exists"):
            errors.append(not_supported(f"{place}.operator", operator, ("Equal", "Exists")))
        elif operator == "Exists" and toleration.get("value"):
            words = "value must be empty when `operator` is 'Exists'"
            errors.append(invalid(f"{place}.operator", toleration["value"], words))
        elif operator != "Exists":
            errors += label_value(f"{place}.value", toleration.get("value") or "")
        if effect and effect not in EFFECTS:
            errors.append(not_supported(f"{place}.effect", effect, EFFECTS))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            words = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{place}.effect", effect, words))
    return errors


def _spread(constraints: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors = []
    choices = ("DoNotSchedule", "ScheduleAnyway")
    for index, constraint in enumerate(constraints):
        place = f"{path}[{index}]"
        skew = constraint.get("maxSkew") or 0
        if skew < 1:
            errors.append(invalid(f"{place}.maxSkew", skew, "must be greater than zero"))
        if not constraint.get("topologyKey"):
            errors.append(required(f"{place}.topologyKey", "can not be empty"))
        if constraint.get("whenUnsatisfiable") not in choices:
            found = constraint.get("whenUnsatisfiable")
            errors.append(not_supported(f"{place}.whenUnsatisfiable", found, choices))
    return errors


def _sysctls(settings: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, setting in enumerate(settings):
        place, name = f"{path}.sysctls[{index}].name", setting.get("name") or ""
        if not name:
            errors.append(required(place))
        elif not _SYSCTL.fullmatch(name) or len(name) > SUBDOMAIN_MAX:
            words = f"must have at most {SUBDOMAIN_MAX} characters and match regex ^{_SYSCTL.pattern}$"
            errors.append(invalid(place, name, words))
        elif name.replace("/", ".") in seen:
            errors.append(duplicate(place, name))
        seen.add(name.replace("/", "."))
    return errors


def _gates(gates: list[dict[str, Any]], path: str) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors += qualified_name(f"{path}[{index}].name", name)
        if name in seen:
            errors.append(duplicate(f"{path}[{index}].name", name))
        seen.add(name)
    return errors


def pod_update(pod: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a pod changes and may not; a gated pod may still be steered to nodes."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    errors = _gate_update(spec, before)
    names = _names(before.get("containers"))
    if len(spec.get("containers") or []) != len(names):
        return [*errors, forbidden("spec.containers", "pod updates may not add or remove containers")]
    allowed = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if before.get("schedulingGates"):
        allowed |= {"nodeSelector", "affinity"}
    elif not _begins_with(spec.get("tolerations") or [], before.get("tolerations") or []):
        words = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(forbidden("spec.tolerations", words))
    if (before.get("terminationGracePeriodSeconds") or 0) < 0:
        allowed.add("terminationGracePeriodSeconds")
    changed = [
        key
        for key in sorted(spec.keys() | before.keys())
        if key not in allowed and _comparable(spec, key) != _comparable(before, key)
    ]
    if changed:
        listed = ", ".join(f"`spec.{key}`" for key in changed)
        errors.append(forbidden("spec", f"{_UPDATE_RULE}; this one changes {listed}"))
    return errors


def without_ephemeral(pod: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the containers that only their subresource adds, and has judged."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or EPHEMERAL_FIELD not in spec:
        return pod
    return {**pod, "spec": _without(spec, EPHEMERAL_FIELD)}


def ephemeral_update(pod: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what is wrong with the ephemeral containers of a pod: those that it has stay as they are."""
    path = f"spec.{EPHEMERAL_FIELD}"
    spec = pod["spec"]
    now = spec.get(EPHEMERAL_FIELD) or []
    others = [one["name"] for key in ("initContainers", "containers") for one in spec.get(key) or []]
    errors = ephemeral_containers(now, path, {volume["name"] for volume in spec.get("volumes") or []}, others)
    for index, container in enumerate(now):
        place = f"{path}[{index}]"
        errors += [
            forbidden(f"{place}.{key}", "cannot be set for an Ephemeral Container")
            for key in sorted(container.keys() - _EPHEMERAL_FIELDS)
            if container[key]
        ]
        errors += refusals(container, place, CONTAINER)
        target = container.get("targetContainerName")
        if target and target not in others:
            words = "is no container of the pod"
            errors.append(invalid(f"{place}.targetContainerName", target, words))
    kept = {container.get("name"): container for container in now}
    for container in old["spec"].get(EPHEMERAL_FIELD) or []:
        name = container["name"]
        if name not in kept:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed'))
        elif kept[name] != container:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed'))
    return errors


def _gate_update(spec: dict[str, Any], before: dict[str, Any]) -> list[FieldError]:
    added = _names(spec.get("schedulingGates")) - _names(before.get("schedulingGates"))
    words = "only deletion is allowed, but found new scheduling gate"
    return [forbidden("spec.schedulingGates", f"{words} '{name}'") for name in sorted(added)]


def _names(items: Iterable[dict[str, Any]] | None) -> set[str]:
    return {item.get("name", "") for item in items or ()}


def _begins_with(tolerations: list[dict[str, Any]], before: list[dict[str, Any]]) -> bool:
    """Whether every old toleration is still there, but for its time."""
    identity = [_without(toleration, "tolerationSeconds") for toleration in tolerations]
    return all(_without(toleration, "tolerationSeconds") in identity for toleration in before)


def _comparable(spec: dict[str, Any], key: str) -> Any:
    value = spec.get(key)
    if key in ("containers", "initContainers"):
        return [_without(container, "image") for container in value or []]
    return value or None


def _without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}
