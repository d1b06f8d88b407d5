"""Which running pod of a job is meant: its primary one, one by name, or the one of a rank. Pure."""

from __future__ import annotations

from typing import Any

from gangline.api.resources import MPIJOBS
from gangline.errors import UserError
from gangline.workloads.job_state import index_of, primary_pods
from gangline.workloads.kinds import REPLICA_INDEX_LABEL, is_worker
from gangline.workloads.rank_hosts import pod_of_rank

Obj = dict[str, Any]

RANKS_PER_POD = "gangline.dev/ranks-per-pod"
"""Annotation of a job whose pods start the ranks of one program in order, a master before the workers."""


def choose_pod(job: Obj, pods: list[Obj], *, instance: str | None, rank: int | None) -> Obj:
    """Return the pod that is meant.

    Raises:
        UserError: there is none, or it does not run.
    """
    name = job["metadata"]["name"]
    chosen = primary_pods(job, pods)
    if rank is not None:
        if instance:
            raise UserError("--rank and --instance exclude each other")
        instance = _holder_of_rank(rank, job, pods)
        if not instance:
            raise UserError(
                f"job `{name}` does not tell which pod holds rank {rank}",
                hint=f"`gangline get {name}` shows its pods; name one with --instance",
            )
    if instance:
        chosen = [pod for pod in pods if is_called(pod["metadata"]["name"], instance, name)]
    running = [pod for pod in chosen if (pod.get("status") or {}).get("phase") == "Running"]
    if running:
        return running[-1]
    there = ", ".join(f"`{one['metadata']['name']}` ({_phase(one)})" for one in pods) or "none"
    what = f"no pod `{instance}` of job `{name}`" if instance else f"no primary pod of job `{name}`"
    raise UserError(f"{what} runs", hint=f"its pods: {there}")


def _holder_of_rank(rank: int, job: Obj, pods: list[Obj]) -> str:
    if job.get("kind") == MPIJOBS.kind:
        return pod_of_rank(rank, job)
    each = (job["metadata"].get("annotations") or {}).get(RANKS_PER_POD, "")
    index = rank // int(each) if each.isdigit() and int(each) else None
    found = [pod["metadata"]["name"] for pod in pods if index is not None and _number(pod) == index]
    return found[-1] if found else ""


def _number(pod: Obj) -> int | None:
    """Return a pod's place among those of its job; None where it does not say."""
    label = (pod["metadata"].get("labels") or {}).get(REPLICA_INDEX_LABEL, "")
    return int(label) + is_worker(pod) if label.isdigit() else index_of(pod)


def is_called(pod: str, word: str, job: str) -> bool:
    """Whether a pod is meant by a word: its name, with or without the job's, or that of its host."""
    return pod in (word, f"{job}-{word}") or (word == f"{job}-launcher" and pod.startswith(f"{word}-"))


def _phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def default_container(pod: Obj) -> str:
    """Return the container that is meant where none is named: that of the annotation, else the first."""
    annotated = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    return str(annotated or pod["spec"]["containers"][0]["name"])
