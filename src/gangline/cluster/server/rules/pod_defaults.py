"""Defaults of a pod's spec, shared by pods and by the templates of jobs.

Source: the defaulting of core/v1 in kube-apiserver; constants are the documented ones.
"""

from __future__ import annotations

from typing import Any

GRACE_PERIOD_S = 30
FILE_MODE = 0o644
PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
NOT_READY_TOLERATION_S = 300

_POD: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": GRACE_PERIOD_S,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def with_defaults(obj: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the values that it lacks; null and empty text count as lacking."""
    missing = {key: value for key, value in values.items() if obj.get(key) in (None, "")}
    return {**obj, **missing} if missing else obj


def pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod or template with defaults. Cost: O(containers + volumes)."""
    result = with_defaults(spec, _POD)
    result = {**result, "securityContext": spec.get("securityContext") or {}}
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        result["serviceAccountName"] = result["serviceAccount"] = account
    for key in ("containers", "initContainers", "ephemeralContainers"):
        if spec.get(key):
            result[key] = [_container(container, result) for container in spec[key]]
    if spec.get("volumes"):
        result["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    return result


def admitted_pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a new pod with what is added to pods alone, not to templates."""
    return {"enableServiceLinks": True, **with_tolerations(spec)}


def with_tolerations(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's spec that tolerates lost nodes for a while. Source: DefaultTolerationSeconds."""
    tolerations = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": NOT_READY_TOLERATION_S,
                }
            )
    return {**spec, "tolerations": tolerations}


def qos_class(spec: dict[str, Any]) -> str:
    """Return ``Guaranteed``, ``Burstable`` or ``BestEffort`` from the requests and limits."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    any_set, all_limited = False, True
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name, limits.get(name))
            any_set = any_set or not _is_zero(limit) or not _is_zero(request)
            all_limited = all_limited and not _is_zero(limit) and _same_amount(limit, request)
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if all_limited else "Burstable"


def _is_zero(quantity: Any) -> bool:
    return quantity is None or str(quantity).strip("+-0.") == "" or _amount(quantity) == 0


def _amount(quantity: Any) -> Any:
    from gangline.units import parse_quantity

    try:
        return parse_quantity(quantity)
    except ValueError:
        return None


def _same_amount(left: Any, right: Any) -> bool:
    return bool(left == right or _amount(left) == _amount(right))


def _tolerates(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def _container(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    result = with_defaults(
        container,
        {
            "imagePullPolicy": pull_policy(container.get("image") or ""),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        },
    )
    result = {**result, "resources": _resources(container.get("resources") or {})}
    if container.get("ports"):
        result["ports"] = [_port(port, spec) for port in container["ports"]]
    if container.get("env"):
        result["env"] = [_env(entry) for entry in container["env"]]
    for key in _PROBES:
        if container.get(key):
            result[key] = _probe(container[key])
    return result


def pull_policy(image: str) -> str:
    """Return ``Always`` for an image without a tag or with ``latest``, else ``IfNotPresent``."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "IfNotPresent" if colon and tag != "latest" else "Always"


def _resources(resources: dict[str, Any]) -> dict[str, Any]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    missing = {name: value for name, value in limits.items() if name not in requests}
    return {**resources, "requests": {**requests, **missing}} if missing else resources


def _port(port: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {"protocol": "TCP"}
    if spec.get("hostNetwork") and not port.get("hostPort"):
        values["hostPort"] = port.get("containerPort")
    return with_defaults(port, values)


def _env(entry: dict[str, Any]) -> dict[str, Any]:
    source = entry.get("valueFrom") or {}
    if not source.get("fieldRef"):
        return entry
    reference = with_defaults(source["fieldRef"], {"apiVersion": "v1"})
    return {**entry, "valueFrom": {**source, "fieldRef": reference}}


def _probe(probe: dict[str, Any]) -> dict[str, Any]:
    # A zero is what Go clients send for `unset`; none of the four may be zero.
    values = {key: value for key, value in PROBE.items() if not probe.get(key)}
    result = {**probe, **values}
    if probe.get("httpGet"):
        result["httpGet"] = with_defaults(probe["httpGet"], {"path": "/", "scheme": "HTTP"})
    if probe.get("grpc"):
        result["grpc"] = with_defaults(probe["grpc"], {"service": ""})
    return result


def _volume(volume: dict[str, Any]) -> dict[str, Any]:
    if len([key for key, value in volume.items() if key != "name" and value is not None]) == 0:
        return {**volume, "emptyDir": {}}
    for key in ("configMap", "secret", "downwardAPI"):
        if volume.get(key) is not None:
            source = with_defaults(volume[key], {"defaultMode": FILE_MODE})
            if key == "downwardAPI":
                source = _downward_items(source)
            return {**volume, key: source}
    if volume.get("hostPath") is not None:
        return {**volume, "hostPath": {"type": "", **volume["hostPath"]}}
    if volume.get("projected") is not None:
        return {**volume, "projected": _projected(volume["projected"])}
    return volume


def _downward_items(source: dict[str, Any]) -> dict[str, Any]:
    if not source.get("items"):
        return source
    items = [
        {**item, "fieldRef": with_defaults(item["fieldRef"], {"apiVersion": "v1"})}
        if item.get("fieldRef")
        else item
        for item in source["items"]
    ]
    return {**source, "items": items}


def _projected(projected: dict[str, Any]) -> dict[str, Any]:
    result = with_defaults(projected, {"defaultMode": FILE_MODE})
    sources = []
    for source in projected.get("sources") or []:
        if source.get("serviceAccountToken"):
            token = with_defaults(source["serviceAccountToken"], {"expirationSeconds": 3600})
            source = {**source, "serviceAccountToken": token}
        if source.get("downwardAPI"):
            source = {**source, "downwardAPI": _downward_items(source["downwardAPI"])}
        sources.append(source)
    return {**result, "sources": sources}
