"""What the server adds to an object, or refuses, because of other objects: namespaces, priorities, addresses.

Rules of one object alone are in shaping.py and behind it.
"""

from __future__ import annotations

from typing import Any

from gangline.api import resources as r
from gangline.cluster.server import service_addresses, status_errors
from gangline.cluster.server.context import ApiContext
from gangline.cluster.server.http.auth import SERVICE_ACCOUNT_COLLECTION
from gangline.cluster.server.quota import limit_range
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.resources import ServedResource
from gangline.cluster.server.rules import crds, metadata
from gangline.cluster.server.rules.pod_defaults import qos_class
from gangline.cluster.server.store.store import Store

ACCOUNT_VOLUME = "kube-api-access-"
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_FILES = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
    "defaultMode": 0o644,
}

NAMESPACE_COLLECTION = "/namespaces"
SERVICE_COLLECTION = "/services"
LIMIT_RANGE_COLLECTION = "/limitranges"
STORAGE_CLASS_COLLECTION = "storage.k8s.io/storageclasses"
PRIORITY_CLASS_COLLECTION = "scheduling.k8s.io/priorityclasses"
RUNTIME_CLASS_COLLECTION = "node.k8s.io/runtimeclasses"


def check_namespace(store: Store, target: RequestTarget, name: str) -> None:
    """Refuse to create in a namespace that does not exist or is going away.

    Raises:
        StatusError: 404 or 403.
    """
    if not target.served.resource.namespaced:
        return
    found = store.latest(NAMESPACE_COLLECTION, "", target.namespace)
    if found is None:
        details = {"name": target.namespace, "kind": "namespaces"}
        raise status_errors.StatusError(
            404, "NotFound", f'namespaces "{target.namespace}" not found', details
        )
    if "deletionTimestamp" in found.obj["metadata"]:
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {target.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise status_errors.refused(
            target.served,
            name,
            f"unable to create new content in namespace {target.namespace} because it is being terminated",
            [cause],
        )


def admit(api: ApiContext, target: RequestTarget, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a new object with what depends on others filled in.

    Raises:
        StatusError: 403.
    """
    resource = target.served.resource
    if resource == r.PODS:
        return _admit_pod(api.store, target, obj)
    if resource == r.SERVICES:
        return _admit_service(api.store, target, obj)
    if resource == r.NAMESPACES:
        return _admit_namespace(obj)
    if resource == r.PERSISTENT_VOLUME_CLAIMS:
        return _in_limits(api.store, target, _admit_claim(api.store, obj))
    if resource == r.PERSISTENT_VOLUMES:
        return _protected(obj, "kubernetes.io/pv-protection")
    if resource == r.CRDS:
        return crds.established(api, obj)
    if resource in r.OLD_VERSIONS:
        return _note_version(obj, resource.api_version)
    return obj


def _note_version(obj: dict[str, Any], api_version: str) -> dict[str, Any]:
    """Return a job of an old version with that version noted: it is stored, and shown, as the new one."""
    meta = obj["metadata"]
    meta["annotations"] = {r.WRITTEN_VERSION_ANNOTATION: api_version, **(meta.get("annotations") or {})}
    return obj


def _admit_claim(store: Store, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with the default class, where it names none; an empty name asks for no class."""
    result = _protected(obj, "kubernetes.io/pvc-protection")
    if (obj.get("spec") or {}).get("storageClassName") is not None:
        return result
    for entry in store.entries(STORAGE_CLASS_COLLECTION):
        annotations = entry.obj["metadata"].get("annotations") or {}
        if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
            return {**result, "spec": {**result["spec"], "storageClassName": entry.obj["metadata"]["name"]}}
    return result


def _protected(obj: dict[str, Any], finalizer: str) -> dict[str, Any]:
    """Return the object with the finalizer that keeps it for as long as it is used."""
    finalizers = obj["metadata"].get("finalizers") or []
    kept = finalizers if finalizer in finalizers else [*finalizers, finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def admit_update(api: ApiContext, target: RequestTarget, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Fill in what follows from an update; ``new`` is changed in place.

    Raises:
        StatusError: 422.
    """
    resource = target.served.resource
    if resource == r.CRDS and target.subresource == "":
        new["status"] = crds.established(api, new).get("status", {})
    elif resource == r.SERVICES and target.subresource == "":
        new["spec"] = _admit_service(api.store, target, new, old)["spec"]
    elif resource in (r.CONFIG_MAPS, r.SECRETS) and old.get("immutable"):
        changed = [key for key in ("data", "binaryData", "immutable") if old.get(key) != new.get(key)]
        if changed:
            raise status_errors.unprocessable(
                f'{resource.kind} "{target.name}" is invalid: {changed[0]}: Forbidden: '
                "field is immutable when `immutable` is set"
            )


def keep_on_update(served: ServedResource, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Take from the old state what only a subresource, or nobody, may change; ``new`` is changed in place."""
    resource = served.resource
    if resource == r.NAMESPACES:
        new["spec"] = old.get("spec", {})
    elif resource == r.SERVICES:
        spec, before = new.get("spec"), old.get("spec") or {}
        if isinstance(spec, dict):
            kept = {
                key: before[key] for key in ("clusterIP", "clusterIPs") if key in before and not spec.get(key)
            }
            if kept and spec.get("type") != "ExternalName":
                new["spec"] = {**spec, **kept}


def _admit_namespace(obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    spec = {**(obj.get("spec") or {}), "finalizers": ["kubernetes"]}
    return {**obj, "spec": spec, "status": {"phase": "Active"}}


def _admit_pod(store: Store, target: RequestTarget, obj: dict[str, Any]) -> dict[str, Any]:
    obj = _in_limits(store, target, obj)
    name = obj["metadata"]["name"]
    spec = dict(obj.get("spec") or {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    found = store.latest(SERVICE_ACCOUNT_COLLECTION, target.namespace, account)
    # `default` may be a moment late in a new namespace; any other one must be there.
    if account != "default" and found is None:
        cause = (
            f"error looking up service account {target.namespace}/{account}: "
            f'serviceaccount "{account}" not found'
        )
        raise status_errors.refused(target.served, name, cause)
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    automount = spec.get("automountServiceAccountToken")
    if automount is None and found is not None:
        automount = found.obj.get("automountServiceAccountToken")
    if automount is not False:
        _show_account(spec)
    _resolve_priority(store, target, name, spec)
    if spec.get("runtimeClassName"):
        _resolve_runtime(store, target, name, spec)
    return {**obj, "spec": spec}


def _show_account(spec: dict[str, Any]) -> None:
    """Add the volume of the service account's files, and show it in each container that has nothing there.

    Source: plugin/pkg/admission/serviceaccount of Kubernetes.
    """
    volumes = spec.get("volumes") or []
    named = (str(one.get("name")) for one in volumes)
    found = next((name for name in named if name.startswith(ACCOUNT_VOLUME)), "")
    name = found or metadata.generate_name(ACCOUNT_VOLUME)
    mount = {"name": name, "readOnly": True, "mountPath": ACCOUNT_FOLDER}
    is_shown = False
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(containers := list(spec.get(kind) or ())):
            mounts = container.get("volumeMounts") or []
            if all(one.get("mountPath") != ACCOUNT_FOLDER for one in mounts):
                containers[index] = {**container, "volumeMounts": [*mounts, mount]}
                is_shown = True
        if containers:
            spec[kind] = containers
    if is_shown and not found:
        spec["volumes"] = [*volumes, {"name": name, "projected": ACCOUNT_FILES}]


def _in_limits(store: Store, target: RequestTarget, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a new pod or claim with what the LimitRanges of its namespace add.

    Raises:
        StatusError: 403, it breaks a bound.
    """
    ranges = [entry.obj for entry in store.entries(LIMIT_RANGE_COLLECTION, target.namespace)]
    if not ranges:
        return obj
    if target.served.resource == r.PODS:
        obj = limit_range.filled_pod(obj, ranges)
        broken = limit_range.broken_by_pod(obj["spec"], ranges)
        obj = {**obj, "status": {**(obj.get("status") or {}), "qosClass": qos_class(obj["spec"])}}
    else:
        broken = limit_range.broken_by_claim(obj.get("spec") or {}, ranges)
    if broken:
        told = broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]"
        raise status_errors.refused(target.served, obj["metadata"]["name"], told)
    return obj


def _resolve_runtime(store: Store, target: RequestTarget, name: str, spec: dict[str, Any]) -> None:
    """Take from a pod's RuntimeClass what it costs and where it runs."""
    wanted = spec["runtimeClassName"]
    entry = store.latest(RUNTIME_CLASS_COLLECTION, "", wanted)
    if entry is None:
        raise status_errors.refused(target.served, name, f'pod rejected: RuntimeClass "{wanted}" not found')
    overhead = (entry.obj.get("overhead") or {}).get("podFixed")
    if overhead:
        if spec.get("overhead", overhead) != overhead:
            words = f"pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead: {overhead}"
            raise status_errors.refused(target.served, name, words)
        spec["overhead"] = overhead
    place = entry.obj.get("scheduling") or {}
    if place.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **place["nodeSelector"]}
    missing = [one for one in place.get("tolerations") or [] if one not in (spec.get("tolerations") or [])]
    if missing:
        spec["tolerations"] = [*(spec.get("tolerations") or []), *missing]


def _resolve_priority(store: Store, target: RequestTarget, name: str, spec: dict[str, Any]) -> None:
    wanted = spec.get("priorityClassName")
    found: dict[str, Any] | None = None
    if wanted:
        entry = store.latest(PRIORITY_CLASS_COLLECTION, "", wanted)
        if entry is None:
            raise status_errors.refused(target.served, name, f"no PriorityClass with name {wanted} was found")
        found = entry.obj
    else:
        classes = (entry.obj for entry in store.entries(PRIORITY_CLASS_COLLECTION))
        found = next((c for c in classes if c.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = int((found or {}).get("value", 0))
    given = spec.get("priority")
    if given is not None and given != value:
        raise status_errors.refused(
            target.served,
            name,
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    spec["preemptionPolicy"] = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"


def _admit_service(
    store: Store, target: RequestTarget, obj: dict[str, Any], old: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a service with its address and ports of the nodes; what its type does not have it gives back.

    Raises:
        StatusError: 422, the address or a port of the nodes is not to be had.
    """
    spec = dict(obj.get("spec") or {})
    before, uid = (old or {}).get("spec") or {}, obj["metadata"]["uid"]
    if spec.get("type") == "ExternalName":
        for key in ("clusterIP", "clusterIPs"):
            if key in before and spec.get(key) == before[key]:
                del spec[key]
    else:
        others = _other_services(store, uid)
        if errors := service_addresses.taken_address(spec, before, others):
            raise status_errors.invalid(target.served, obj["metadata"]["name"], errors)
        spec["clusterIP"] = spec.get("clusterIP") or service_addresses.free_address(others, uid)
        spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
    if service_addresses.has_node_ports(spec) or service_addresses.ports_of(spec):
        others = _other_services(store, uid)
        taken = {number for other in others for number in service_addresses.ports_of(other)}
        spec["ports"], errors = service_addresses.with_node_ports(spec, before, taken, uid)
        if errors:
            raise status_errors.invalid(target.served, obj["metadata"]["name"], errors)
    return {**obj, "spec": spec}


def _other_services(store: Store, uid: str) -> list[dict[str, Any]]:
    """Return what all services but one are to be."""
    services = (entry.obj for entry in store.entries(SERVICE_COLLECTION))
    return [other.get("spec") or {} for other in services if other["metadata"]["uid"] != uid]
