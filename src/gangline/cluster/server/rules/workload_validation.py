"""Rules of workloads with a template, and of claims.

Source: validation of apps/v1 and core/v1 in kube-apiserver; messages keep its words.
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules.field_rules import immutable, invalid, label_map, not_supported, required
from gangline.cluster.server.rules.job_validation import selector_errors
from gangline.cluster.server.rules.pod_validation import pod_spec
from gangline.errors import FieldError

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
    errors += pod_spec(pod, "spec.template.spec")
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
