"""Rules of jobs, and what may change of a job after its creation.

Source: validation of batch/v1 in kube-apiserver; messages keep its words.
"""

from __future__ import annotations

import re
from typing import Any

from gangline.cluster.server.rules.field_rules import (
    annotation_map,
    forbidden,
    immutable,
    invalid,
    label_map,
    not_supported,
    required,
    shown,
)
from gangline.cluster.server.rules.pod_validation import pod_spec
from gangline.cluster.server.wire.selectors import label_selector_from_object
from gangline.errors import FieldError

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "ttlSecondsAfterFinished",
)
_CHOICES = {
    "completionMode": ("NonIndexed", "Indexed"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
}
# "0-2,5"
_INDEXES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_RULE_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_STEERING_SPEC = frozenset({"nodeSelector", "tolerations", "affinity", "schedulingGates"})
_STEERING_META = frozenset({"labels", "annotations"})


def job(obj: dict[str, Any]) -> list[FieldError]:
    """Return every rule that a job breaks. Cost: that of its pod template."""
    spec = obj.get("spec") or {}
    errors = []
    for key in _COUNTS:
        value = spec.get(key)
        if value is not None and value < 0:
            errors.append(invalid(f"spec.{key}", value, "must be greater than or equal to 0"))
    for key, choices in _CHOICES.items():
        if spec.get(key) and spec[key] not in choices:
            errors.append(not_supported(f"spec.{key}", spec[key], choices))
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("completions") is None:
        errors.append(required("spec.completions", "when completion mode is Indexed"))
    errors += _index_rules(spec, indexed)
    template = spec.get("template") or {}
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    errors += label_map("spec.template.metadata.labels", metadata.get("labels"))
    errors += annotation_map("spec.template.metadata.annotations", metadata.get("annotations"))
    errors += selector_errors(spec, metadata)
    errors += pod_spec(pod, "spec.template.spec")
    if pod.get("restartPolicy") == "Always":
        errors.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    if spec.get("podFailurePolicy"):
        errors += _failure_policy(spec, pod)
    return errors


def selector_errors(spec: dict[str, Any], metadata: dict[str, Any]) -> list[FieldError]:
    """Return what is wrong with a selector, by itself or with a template of such metadata."""
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    try:
        matches = label_selector_from_object(selector).matches(metadata.get("labels"))
    except ValueError as error:
        return [invalid("spec.selector", selector, str(error))]
    if matches:
        return []
    words = "`selector` does not match template `labels`"
    return [invalid("spec.template.metadata.labels", metadata.get("labels") or {}, words)]


def _index_rules(spec: dict[str, Any], indexed: bool) -> list[FieldError]:
    """Return what is wrong with the fields that are about single completions."""
    errors = []
    if not indexed:
        for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(key) is not None:
                errors.append(invalid(f"spec.{key}", spec[key], "requires indexed completion mode"))
    most, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if most is not None and completions is not None and most > completions:
        errors.append(invalid("spec.maxFailedIndexes", most, "must be less than or equal to completions"))
    if indexed and spec.get("successPolicy") is not None:
        errors += _success_policy(spec["successPolicy"], completions or 0)
    return errors


def _success_policy(policy: dict[str, Any], completions: int) -> list[FieldError]:
    path, rules = "spec.successPolicy.rules", policy.get("rules") or []
    if not rules:
        words = "at least one rules must be specified when the successPolicy is specified"
        return [required(path, words)]
    errors = []
    for number, rule in enumerate(rules):
        place, count, indexes = f"{path}[{number}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            words = "at least one of succeededCount or succeededIndexes must be specified"
            errors.append(required(place, words))
        if indexes is not None and not _INDEXES.fullmatch(indexes):
            words = "error parsing succeededIndexes: must be indexes and ranges in order, like 0-2,5"
            errors.append(invalid(f"{place}.succeededIndexes", indexes, words))
        if count is not None and not 0 <= count <= completions:
            words = f"must be less than or equal to {completions} (the number of specified completions)"
            if count < 0:
                words = "must be greater than or equal to 0"
            errors.append(invalid(f"{place}.succeededCount", count, words))
    return errors


def _failure_policy(spec: dict[str, Any], pod: dict[str, Any]) -> list[FieldError]:
    errors = []
    policy, path = spec["podFailurePolicy"], "spec.podFailurePolicy.rules"
    if spec.get("podReplacementPolicy") not in (None, "", "Failed"):
        errors.append(not_supported("spec.podReplacementPolicy", spec["podReplacementPolicy"], ("Failed",)))
    if pod.get("restartPolicy") != "Never":
        words = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid("spec.template.spec.restartPolicy", pod.get("restartPolicy"), words))
    for index, rule in enumerate(policy.get("rules") or []):
        place = f"{path}[{index}]"
        if rule.get("action") not in _RULE_ACTIONS:
            errors.append(not_supported(f"{place}.action", rule.get("action"), _RULE_ACTIONS))
        elif rule["action"] == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            words = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid(f"{place}.action", "FailIndex", words))
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions")
        if (codes is None) == (not patterns):
            words = "specifying one of OnExitCodes and OnPodConditions is required"
            both = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(invalid(place, "", words if codes is None else both))
        if codes is not None:
            if codes.get("operator") not in ("In", "NotIn"):
                errors.append(
                    not_supported(f"{place}.onExitCodes.operator", codes.get("operator"), ("In", "NotIn"))
                )
            if not codes.get("values"):
                errors.append(invalid(f"{place}.onExitCodes.values", [], "at least one value is required"))
            elif codes.get("operator") == "In" and 0 in codes["values"]:
                errors.append(invalid(f"{place}.onExitCodes.values", 0, "must not be 0 for the In operator"))
    return errors


def job_update(obj: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Return what an update of a job changes and may not.

    A suspended job that has not started may still be steered: labels, annotations, node selector, affinity,
    tolerations and scheduling gates of its template.
    """
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    errors = [
        immutable(f"spec.{key}", spec.get(key))
        for key in _IMMUTABLE
        if (spec.get(key) or None) != (before.get(key) or None)
    ]
    if spec.get("completions") != before.get("completions") and not _is_elastic(spec, before):
        errors.append(immutable("spec.completions", spec.get("completions")))
    template, template_before = spec.get("template") or {}, before.get("template") or {}
    not_started = bool(before.get("suspend")) and not (old.get("status") or {}).get("startTime")
    if _compared(template, not_started) != _compared(template_before, not_started):
        changed = _changed_keys(template, template_before, not_started)
        errors.append(
            FieldError(
                "Invalid", "spec.template", f"field is immutable; this update changes {changed}", shown("...")
            )
        )
    if spec.get("manualSelector") and not before.get("manualSelector"):
        errors.append(forbidden("spec.manualSelector", "may not be set after creation"))
    return errors


def _is_elastic(spec: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether an indexed job is resized: completions and parallelism change together."""
    return (
        before.get("completionMode") == "Indexed"
        and spec.get("completions") == spec.get("parallelism")
        and before.get("completions") == before.get("parallelism")
    )


def _compared(template: dict[str, Any], not_started: bool) -> dict[str, Any]:
    """Return the parts of a template that may not change, as one flat object without empty values."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    loose_meta = _STEERING_META if not_started else frozenset()
    loose_spec = _STEERING_SPEC if not_started else frozenset()
    parts = {f"metadata.{key}": value for key, value in metadata.items() if key not in loose_meta and value}
    return parts | {f"spec.{key}": value for key, value in spec.items() if key not in loose_spec and value}


def _changed_keys(template: dict[str, Any], before: dict[str, Any], not_started: bool) -> str:
    new, old = _compared(template, not_started), _compared(before, not_started)
    return ", ".join(f"`{key}`" for key in sorted(new.keys() | old.keys()) if new.get(key) != old.get(key))
