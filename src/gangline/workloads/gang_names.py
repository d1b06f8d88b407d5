"""Which gang a pod says that it belongs to, and how large that is, in everybody's labels. Pure."""

from __future__ import annotations

from gangline.api.core import Pod

GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name", "gpu-topology")
"""Labels of pods that name their gang: scheduler-plugins', the light ones that arena writes, ACK's."""

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Volcano's."""

SIZE_LABELS = ("pod-group.scheduling.sigs.k8s.io/min-available", "gpu-topology-replica")
"""Labels that tell the size of a gang for which there is no PodGroup."""

SIZE_ANNOTATION = "gangline.dev/gang-size"
"""On pods of any workload, an indexed Job's, a JobSet's, a LeaderWorkerSet's: how many of it start together.

A workload has no object of its own that says so, and its pods name it: those of a JobSet, of one group of a
LeaderWorkerSet, of a Job, else those of one controller, are one gang.
"""

WORKLOAD_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name",),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("batch.kubernetes.io/job-name",),
)
"""Labels of pods that name their workload, and its part that is a gang. Source: their APIs."""


def gang_of(pod: Pod) -> str:
    """Return ``NAMESPACE/NAME`` of the gang that a pod's spec, labels or annotations name, or nothing.

    Of a pod group of a Workload ``NAMESPACE/WORKLOAD/POD-GROUP``, and ``/REPLICA`` where it has replicas.
    """
    meta, ref = pod.metadata, pod.spec.workload_ref
    if group := pod.spec.scheduling_group.get("podGroupName"):
        return f"{meta.namespace}/{group}"
    if ref is not None:
        parts = (meta.namespace, ref.name, ref.pod_group, ref.pod_group_replica_key)
        return "/".join(filter(None, parts))
    names = [meta.annotations.get(key) for key in GROUP_ANNOTATIONS]
    names += [meta.labels.get(key) for key in GROUP_LABELS]
    if _size_of_workload(pod):
        names += ["-".join(map(meta.labels.__getitem__, keys)) for keys in WORKLOAD_LABELS if _has(pod, keys)]
        names += [meta.controller.name if meta.controller else None]
    return next((f"{meta.namespace}/{name}" for name in names if name), "")


def succeeded_gang(pod: Pod) -> str:
    """Return the gang in which a pod that has succeeded keeps its place, or nothing.

    Of a workload whose controller makes a failed pod anew beside those that have succeeded.
    """
    return gang_of(pod) if pod.status.phase == "Succeeded" and _size_of_workload(pod) else ""


def _has(pod: Pod, labels: tuple[str, ...]) -> bool:
    return all(pod.metadata.labels.get(label) for label in labels)


def _size_of_workload(pod: Pod) -> int:
    text = pod.metadata.annotations.get(SIZE_ANNOTATION, "")
    return int(text) if text.isdecimal() else 0


def gang_size(pod: Pod) -> int:
    """Return the size of its gang that a pod tells; 0 where it tells none."""
    labels = pod.metadata.labels
    sizes = [labels[key] for key in SIZE_LABELS if labels.get(key, "").isdigit()]
    return int(sizes[0]) if sizes else _size_of_workload(pod)
