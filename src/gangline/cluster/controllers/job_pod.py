"""The pods that a Job creates, and the completion indexes that tell those of an Indexed Job apart. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gangline.api.core import Pod
from gangline.api.resources import JOBS
from gangline.cluster.controllers.job_types import TrackedJob
from gangline.cluster.controllers.pod_rules import pod_from

INDEX_KEY = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of a pod of an Indexed Job."""

INDEX_FAILURES_KEY = "batch.kubernetes.io/job-index-failure-count"
"""Annotation: how many pods of the index failed before this one."""

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


def pod_manifest(job: TrackedJob, index: int | None = None, failures: int | None = None) -> dict[str, Any]:
    """Return a pod of the Job's template; the server completes the name. Shares parts of the template.

    Args:
        job: the owner.
        index: completion index of a pod of an Indexed Job: it becomes label, annotation, variable and, unless
            the template has one, host name.
        failures: how many pods of the index failed before; None where no limit is set for each index.
    """
    template, name = job.spec.template, job.metadata.name
    if index is None:
        return pod_from(template, JOBS, job.metadata, generateName=f"{name}-")
    key = {INDEX_KEY: str(index)}
    notes = key if failures is None else {**key, INDEX_FAILURES_KEY: str(failures)}
    pod = pod_from(
        template, JOBS, job.metadata, generateName=f"{name}-{index}-", labels=key, annotations=notes
    )
    return {**pod, "spec": _indexed_spec(pod["spec"], f"{name}-{index}")}


def _indexed_spec(spec: dict[str, Any], hostname: str) -> dict[str, Any]:
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX_KEY}']"}}
    variable = {"name": INDEX_VARIABLE, "valueFrom": source}
    result = {**spec, "hostname": spec.get("hostname") or hostname}
    for field in ("containers", "initContainers"):
        if containers := spec.get(field):
            result[field] = [_with_variable(container, variable) for container in containers]
    return result


def _with_variable(container: dict[str, Any], variable: dict[str, Any]) -> dict[str, Any]:
    env = container.get("env") or []
    if any(entry.get("name") == variable["name"] for entry in env):
        return container
    return {**container, "env": [*env, variable]}


def pod_index(pod: Pod) -> int | None:
    """Return the completion index of a pod, or None."""
    text = pod.metadata.annotations.get(INDEX_KEY) or pod.metadata.labels.get(INDEX_KEY) or ""
    return int(text) if text.isdigit() else None


def earlier_failures(pod: Pod) -> int:
    """Return how many pods of the same index failed before this one."""
    text = pod.metadata.annotations.get(INDEX_FAILURES_KEY) or ""
    return int(text) if text.isdigit() else 0


def parse_indexes(text: str) -> set[int]:
    """Return the indexes of a text like ``0-2,5``; what cannot be read is skipped."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Collection[int]) -> str:
    """Return indexes as ``status.completedIndexes`` has them: sorted, runs of two and more joined."""
    parts: list[str] = []
    first = last = -2
    for index in [*sorted(indexes), -1]:
        if index == last + 1:
            last = index
            continue
        if first >= 0:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = index
    return ",".join(parts)


def free_indexes(completions: int, taken: Collection[int], count: int) -> tuple[int, ...]:
    """Return the lowest ``count`` indexes below ``completions`` that are not taken."""
    free: list[int] = []
    for index in range(completions):
        if len(free) >= count:
            break
        if index not in taken:
            free.append(index)
    return tuple(free)
