"""What the name given to ``gangline explain`` stands for, and its pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a name stands for.

    Attributes:
        title: ``mpijob default/x``.
        job: in wire form; None for a gang of which only pods and PodGroup are known.
        pods: of it, in wire form, those of one gang in the order of their ranks.
    """

    title: str
    job: Obj | None
    pods: list[Obj]


async def find_by_labels(client: ObjectClient, name: str, namespace: str) -> Subject | None:
    """Return a job, or a PodGroup that pods name by a label, with the pods that the server finds by labels.

    None for what is found only by looking at all pods of a namespace: see :func:`find_in`.
    """
    from gangline.api.resources import PODS
    from gangline.client.jobs.job_lookup import NoSuchJobError, find_job, pods_of
    from gangline.workloads.gang_names import GROUP_LABELS
    from gangline.workloads.job_state import sort_pods
    from gangline.workloads.kinds import kind_called, kind_of

    kind, _, bare = name.rpartition("/")
    wanted = kind.lower().partition(".")[0].removesuffix("s")
    asked = kind_called(kind)
    if not wanted or (asked is not None and asked.is_job):
        try:
            _, job = await find_job(client, name, namespace)
        except NoSuchJobError:
            if wanted:
                raise
        else:
            pods = [pod for pod in await pods_of(client, job) if kind_of(job).belongs(job, pod)]
            return Subject(f"{job['kind'].lower()} {namespace}/{bare}", job, sort_pods(pods))
    if wanted not in ("", "podgroup", "pg"):
        return None
    named = await asyncio.gather(
        *(client.list(PODS, namespace, label_selector=f"{label}={bare}") for label in GROUP_LABELS)
    )
    found = {pod["metadata"]["uid"]: pod for listed in named for pod in listed.items}
    return Subject(f"podgroup {namespace}/{bare}", None, sort_pods(found.values())) if found else None


async def find_in(client: ObjectClient, view: ClusterView, name: str, namespace: str) -> Subject:
    """Return what a name stands for: a job, a pod, a PodGroup, else whatever owns pods."""
    from gangline.client.jobs.job_lookup import find_job
    from gangline.workloads.job_state import sort_pods
    from gangline.workloads.kinds import kind_called, kind_of

    kind, _, bare = name.rpartition("/")
    wanted = kind.lower().partition(".")[0].removesuffix("s")
    own = [pod for pod in view.pods if pod["metadata"].get("namespace") == namespace]
    asked = kind_called(kind)
    if not wanted or (asked is not None and asked.is_job):
        try:
            _, job = await find_job(client, name, namespace)
        except UserError as error:
            if wanted:
                raise
            unknown = error
        else:
            title = f"{job['kind'].lower()} {namespace}/{bare}"
            return Subject(title, job, sort_pods(pod for pod in own if kind_of(job).belongs(job, pod)))
    else:
        unknown = UserError(
            f"no {kind} `{bare}` in namespace `{namespace}` has pods",
            hint="KIND is mpijob, job, pod, podgroup, or that of what owns the pods, such as pytorchjob",
        )
    gang = f"{namespace}/{bare}"
    if wanted in ("", "podgroup", "pg"):
        found = [pod for pod in own if view.gang_of(pod) == gang]
        if found or gang in view.groups:
            return Subject(f"podgroup {gang}", None, sort_pods(found))
    found = [pod for pod in own if _is_of(pod, wanted, bare)]
    if not found:
        raise unknown
    return Subject(f"{wanted or 'job'} {gang}", None, sort_pods(found))


def _is_of(pod: Obj, kind: str, name: str) -> bool:
    """Return whether a pod's labels or owners name a job; a Deployment's pods are its ReplicaSet's."""
    from gangline.api.resources import REPLICA_SETS
    from gangline.placement.snapshot import JOB_NAME_LABELS
    from gangline.workloads.workload_sets import KIND_LABELS

    labels = pod["metadata"].get("labels") or {}
    keys = (*JOB_NAME_LABELS, *KIND_LABELS.values()) if not kind else (KIND_LABELS.get(kind, ""),)
    if any(labels.get(key) == name for key in keys):
        return True
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("name") == name and kind in ("", str(owner.get("kind")).lower()):
            return True
        is_set = owner.get("kind") == REPLICA_SETS.kind and str(owner.get("name")).rpartition("-")[0] == name
        if is_set and kind in ("", "deployment"):
            return True
    return False
