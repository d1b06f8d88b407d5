"""Defaults of apps/v1, ReplicationControllers, claims, volumes and storage classes.

Source: the defaulting of apps/v1, core/v1 and storage/v1 in kube-apiserver.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules.pod_defaults import pod_spec, with_defaults

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
_STRATEGIES: dict[str, tuple[str, Obj]] = {
    "Deployment": ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "StatefulSet": ("updateStrategy", {"partition": 0}),
    "DaemonSet": ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
}
"""Which field says how pods are replaced, and the bounds of a rolling update."""

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"


def workload(obj: Obj, old: Obj | None) -> Obj:
    """Return a workload with its defaults, those of its pod template included."""
    kind = str(obj.get("kind") or "")
    template = obj.get("spec", {}).get("template") or {}
    spec = with_defaults(obj.get("spec") or {}, _SPECS.get(kind, {}))
    spec = {**spec, "template": {**template, "spec": pod_spec(template.get("spec") or {})}}
    if kind in _STRATEGIES:
        field, bounds = _STRATEGIES[kind]
        strategy = with_defaults(spec.get(field) or {}, {"type": "RollingUpdate"})
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = with_defaults(strategy.get("rollingUpdate") or {}, bounds)
        spec[field] = strategy
    if kind == "ReplicationController" and not spec.get("selector"):
        spec["selector"] = (template.get("metadata") or {}).get("labels") or {}
    if spec.get("volumeClaimTemplates"):
        spec["volumeClaimTemplates"] = [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim(one, None)}
            for one in spec["volumeClaimTemplates"]
        ]
    result = {**obj, "spec": spec}
    return {**result, "status": {}} if old is None else result


def claim(obj: Obj, old: Obj | None) -> Obj:
    """Return a PersistentVolumeClaim with its defaults."""
    spec = with_defaults(obj.get("spec") or {}, {"volumeMode": "Filesystem"})
    result = {**obj, "spec": spec}
    return {**result, "status": {"phase": "Pending"}} if old is None else result


def volume(obj: Obj, old: Obj | None) -> Obj:
    """Return a PersistentVolume with its defaults."""
    values = {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"}
    result = {**obj, "spec": with_defaults(obj.get("spec") or {}, values)}
    return {**result, "status": {"phase": "Pending"}} if old is None else result


def storage_class(obj: Obj, _: Obj | None) -> Obj:
    """Return a StorageClass with its defaults."""
    return with_defaults(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})
