"""How a job stands and which pods are its own: from objects in wire form. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from gangline.api.core import DEFAULT_SCHEDULER
from gangline.workloads.kinds import is_worker, kind_of
from gangline.workloads.requests import pod_gpus

Obj = dict[str, Any]

KUBE_QUEUE_ANNOTATION = "scheduling.x-k8s.io/suspend"
"""By which kube-queue holds a job until its quota admits it."""

_NAME = ""
"""In place of a label: the name of the pod itself."""


def condition(obj: Obj, kind: str) -> Obj | None:
    """Return the condition of that type when its status is True."""
    for found in obj.get("status", {}).get("conditions") or []:
        if found.get("type") == kind and found.get("status") == "True":
            return dict(found)
    return None


def finished(job: Obj) -> Literal["", "SUCCEEDED", "FAILED"]:
    """Return ``SUCCEEDED`` or ``FAILED`` for a job that is over, else an empty text."""
    phase = job.get("status", {}).get("phase", "")  # of a pod
    if phase == "Succeeded" or condition(job, "Succeeded") or condition(job, "Complete"):
        return "SUCCEEDED"
    return "FAILED" if phase == "Failed" or condition(job, "Failed") else ""


def ended_at(job: Obj) -> str:
    """Return when a job that is over ended, RFC 3339; empty for one that goes on or does not say."""
    if not finished(job):
        return ""
    status = job.get("status") or {}
    times = [found.get("lastTransitionTime") or "" for found in status.get("conditions") or []]
    for container in status.get("containerStatuses") or []:  # of a pod alone
        times.append(((container.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
    return str(status.get("completionTime") or max(times, default=""))


def primary_pods(job: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Return the pods whose log is the job's, oldest first: launchers of an MPIJob, all pods of a Job.

    The last decides the job's end, and is the one that is meant where one is. Of an indexed Job, whose pods
    run together, that is one that failed by itself, else the newest of index 0.
    """
    kind = kind_of(job)
    found = [pod for pod in pods if kind.is_primary(job, pod)]

    def order(pod: Obj) -> tuple[bool, int, str, str]:
        meta, index = pod["metadata"], index_of(pod)
        is_failed = (pod.get("status") or {}).get("phase") == "Failed" and not meta.get("deletionTimestamp")
        failed_together = index is not None and is_failed
        return failed_together, -(index or 0), meta.get("creationTimestamp") or "", meta["name"]

    return sorted(found, key=order)


def index_of(pod: Obj) -> int | None:
    """Return the index of a pod in its indexed Job; None for every other pod."""
    index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", "")
    return int(index) if index.isdigit() else None


def has_started(pod: Obj) -> bool:
    """Return whether the first container of a pod runs or ran."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        state = status.get("state") or {}
        if "running" in state or "terminated" in state or status.get("lastState", {}).get("terminated"):
            return True
    return False


def sort_pods(pods: Iterable[Obj]) -> list[Obj]:
    """Return pods with launchers first, then workers by their index, then by name."""

    def order(pod: Obj) -> tuple[bool, int, str]:
        labels = pod["metadata"].get("labels") or {}
        index = labels.get("training.kubeflow.org/replica-index", "")
        return (
            is_worker(pod),
            int(index) if index.isdigit() else 0,
            pod["metadata"]["name"],
        )

    return sorted(pods, key=order)


def pods_by_job(jobs: Sequence[Obj], pods: Iterable[Obj]) -> list[list[Obj]]:
    """Return the pods of each job. Cost: O(jobs + pods), where jobs name their pods by labels."""
    members: list[list[Obj]] = [[] for _ in jobs]
    wanted: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        labels, namespace = kind_of(job).pod_labels, job["metadata"].get("namespace", "")
        key, value = next(iter(labels(job).items()), ("", "")) if labels else (_NAME, job["metadata"]["name"])
        wanted[namespace, key, value].append(index)
    keys = {key for _, key, _ in wanted}
    for pod in pods:
        metadata = pod["metadata"]
        labels_of_pod = (metadata.get("labels") or {}) | {_NAME: metadata["name"]}
        for key in keys & labels_of_pod.keys():
            for index in wanted.get((metadata.get("namespace", ""), key, labels_of_pod[key]), ()):
                if kind_of(jobs[index]).belongs(jobs[index], pod):
                    members[index].append(pod)
    return members


def expected_pods(job: Obj) -> int:
    """Return how many pods a job has when all of it runs."""
    return sum(replicas.count for replicas in kind_of(job).replicas(job))


def requested_gpus(job: Obj) -> int:
    """Return how many GPUs all pods of a job ask for together."""
    return sum(
        pod_gpus(replicas.template.get("spec")) * replicas.count for replicas in kind_of(job).replicas(job)
    )


def priority_class(job: Obj) -> str:
    """Return the priority class that a job names for its gang or its pods; empty without one."""
    kind = kind_of(job)
    policy = (kind.spec(job).get("runPolicy") or {}).get("schedulingPolicy") or {}
    pods = [replicas.template.get("spec") or {} for replicas in kind.replicas(job)]
    names = [policy.get("priorityClass"), *(pod.get("priorityClassName") for pod in pods)]
    return str(next(filter(None, names), ""))


def is_suspended(job: Obj) -> bool:
    """Return whether a job is suspended by its own spec."""
    spec = kind_of(job).spec(job)
    return bool(spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"))


def scheduler_of(pod: Obj) -> str:
    """Return which scheduler places a pod."""
    return str(pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER)


def is_controlled(obj: Obj) -> bool:
    """Return whether another object controls this one."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or [])


def exit_code_of(pod: Obj) -> int | None:
    """Return the exit code of a pod's first container that failed, else 0; ``None`` while one runs."""
    codes = []
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated")
        if ended is None:
            return None
        codes.append(int(ended.get("exitCode", 0)))
    if not codes:
        return None
    return next((code for code in codes if code), 0)
