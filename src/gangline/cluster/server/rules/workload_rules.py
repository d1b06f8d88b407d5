"""Defaults and rules of workloads with a template, of claims, volumes and storage classes.

Source: apps/v1, core/v1 and storage/v1 in kube-apiserver, defaulting and validation; words as there.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules.field_rules import immutable, invalid, label_map, not_supported, required
from gangline.cluster.server.rules.job_validation import selector_errors
from gangline.cluster.server.rules.pod_defaults import pod_spec, with_defaults
from gangline.cluster.server.rules.pod_validation import pod_spec as pod_spec_errors
from gangline.errors import FieldError

Obj = dict[str, Any]

_SPECS: dict[str, Obj] = {
    "Deployment": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "ReplicaSet": {"replicas": 1},
    "ReplicationController": {"replicas": 1},
    "StatefulSet": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "DaemonSet": {"revisionHistoryLimit": 10},
}
_ROLLING: dict[str, tuple[str, Obj]] = {
    "Deployment": ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "StatefulSet": ("updateStrategy", {"partition": 0}),
    "DaemonSet": ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
}
"""Which field says how pods are replaced, and the bounds of a rolling update."""

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"


def workload_defaults(obj: Obj, old: Obj | None) -> Obj:
    """Return a workload with its defaults, those of its pod template included."""
    kind = str(obj.get("kind") or "")
    template = obj.get("spec", {}).get("template") or {}
    spec = with_defaults(obj.get("spec") or {}, _SPECS.get(kind, {}))
    spec = {**spec, "template": {**template, "spec": pod_spec(template.get("spec") or {})}}
    if kind in _ROLLING:
        field, bounds = _ROLLING[kind]
        strategy = with_defaults(spec.get(field) or {}, {"type": "RollingUpdate"})
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = with_defaults(strategy.get("rollingUpdate") or {}, bounds)
        spec[field] = strategy
    if kind == "ReplicationController" and not spec.get("selector"):
        spec["selector"] = (template.get("metadata") or {}).get("labels") or {}
    if spec.get("volumeClaimTemplates"):
        spec["volumeClaimTemplates"] = [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim_defaults(one, None)}
            for one in spec["volumeClaimTemplates"]
        ]
    result = {**obj, "spec": spec}
    return {**result, "status": {}} if old is None else result


def claim_defaults(obj: Obj, old: Obj | None) -> Obj:
    """Return a PersistentVolumeClaim with its defaults."""
    spec = with_defaults(obj.get("spec") or {}, {"volumeMode": "Filesystem"})
    result = {**obj, "spec": spec}
    return {**result, "status": {"phase": "Pending"}} if old is None else result


def volume_defaults(obj: Obj, old: Obj | None) -> Obj:
    """Return a PersistentVolume with its defaults."""
    values = {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"}
    result = {**obj, "spec": with_defaults(obj.get("spec") or {}, values)}
    return {**result, "status": {"phase": "Pending"}} if old is None else result


def storage_class_defaults(obj: Obj, _: Obj | None) -> Obj:
    """Return a StorageClass with its defaults."""
    return with_defaults(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


_STRATEGIES = {
    "Deployment": ("strategy", ("Recreate", "RollingUpdate")),
    "StatefulSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
    "DaemonSet": ("updateStrategy", ("OnDelete", "RollingUpdate")),
}
_COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_KEPT = ("serviceName", "podManagementPolicy", "volumeClaimTemplates")
"""What a StatefulSet keeps for life."""


def workload(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a workload breaks."""
    spec, kind = obj.get("spec") or {}, obj.get("kind")
    errors = [
        invalid(f"spec.{key}", spec[key], "must be greater than or equal to 0")
        for key in _COUNTS
        if (spec.get(key) or 0) < 0
    ]
    if kind in _STRATEGIES:
        field, choices = _STRATEGIES[kind]
        found = (spec.get(field) or {}).get("type")
        if found not in choices:
            errors.append(not_supported(f"spec.{field}.type", found, choices))
    template = spec.get("template") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    errors += label_map("spec.template.metadata.labels", metadata.get("labels"))
    if kind != "ReplicationController":
        errors += selector_errors(spec, metadata)
    elif not spec.get("selector"):
        errors.append(required("spec.selector"))
    errors += pod_spec_errors(pod, "spec.template.spec")
    if pod.get("restartPolicy") not in (None, "", "Always"):
        errors.append(
            not_supported("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ("Always",))
        )
    return errors


def workload_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a workload changes and may not."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    kept = ("selector", *(_KEPT if obj.get("kind") == "StatefulSet" else ()))
    if obj.get("kind") == "ReplicationController":
        kept = ()
    return [
        immutable(f"spec.{key}", spec.get(key))
        for key in kept
        if (spec.get(key) or None) != (before.get(key) or None)
    ]


def claim(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a PersistentVolumeClaim breaks."""
    spec = obj.get("spec") or {}
    errors = (
        []
        if spec.get("accessModes")
        else [required("spec.accessModes", "at least 1 access mode is required")]
    )
    if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
        errors.append(required("spec.resources[storage]"))
    return errors
