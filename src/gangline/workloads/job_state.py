"""How a job stands and which pods are its own: from objects in wire form. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Obj = dict[str, Any]

JOB_NAME_LABEL = "training.kubeflow.org/job-name"
ROLE_LABEL = "training.kubeflow.org/job-role"
BATCH_JOB_LABEL = "batch.kubernetes.io/job-name"


def condition(obj: Obj, kind: str) -> Obj | None:
    """Return the condition of that type when its status is True."""
    for found in obj.get("status", {}).get("conditions") or []:
        if found.get("type") == kind and found.get("status") == "True":
            return dict(found)
    return None


def finished(job: Obj) -> str:
    """Return ``SUCCEEDED`` or ``FAILED`` for a job that is over, else an empty text."""
    if job["kind"] == "Pod":
        phase = job.get("status", {}).get("phase", "")
        return phase.upper() if phase in ("Succeeded", "Failed") else ""
    if condition(job, "Succeeded") or condition(job, "Complete"):
        return "SUCCEEDED"
    return "FAILED" if condition(job, "Failed") else ""


def chief_pods(job: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Return the pods whose log is the job's, oldest first: launchers of an MPIJob, all pods of a Job."""
    found = list(pods)
    if job["kind"] == "MPIJob":
        found = [pod for pod in found if (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == "launcher"]
    return sorted(
        found, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"])
    )


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
            labels.get(ROLE_LABEL) == "worker",
            int(index) if index.isdigit() else 0,
            pod["metadata"]["name"],
        )

    return sorted(pods, key=order)


def pod_selector(job: Obj) -> tuple[str, str]:
    """Return label and field selector of the pods that belong to a job."""
    name = job["metadata"]["name"]
    if job["kind"] == "MPIJob":
        return f"{JOB_NAME_LABEL}={name}", ""
    if job["kind"] == "Job":
        return f"{BATCH_JOB_LABEL}={name}", ""
    return "", f"metadata.name={name}"


def belongs(job: Obj, pod: Obj) -> bool:
    """Return whether a pod of the same namespace belongs to a job."""
    labels = pod["metadata"].get("labels") or {}
    name = job["metadata"]["name"]
    if pod["metadata"].get("namespace") != job["metadata"].get("namespace"):
        return False
    if job["kind"] == "MPIJob":
        return bool(labels.get(JOB_NAME_LABEL) == name)
    if job["kind"] == "Job":
        return name in (labels.get(BATCH_JOB_LABEL), labels.get("job-name"))
    return bool(pod["metadata"]["name"] == name)


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
