"""Explain a job: what is read of a cluster for it, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline.client.explain.past import explain_past
from gangline.client.jobs.job_lookup import NoSuchJobError
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.kube.verbs import ObjectClient
    from gangline.placement import Workload

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


async def explain_job(
    target: ClusterTarget, name: str, workload: Workload, *, placement: bool = False
) -> dict[str, Any]:
    """Return why a job that is there waits, or how the newest run of its name ended (with `began`).

    Args:
        target: the cluster.
        name: of a job, a pod or a PodGroup; `KIND/NAME` means one kind.
        workload: for which steps are predicted.
        placement: also what its placement is worth, as `placement`.

    Raises:
        NoSuchJobError: there is neither.
        ClusterError: the cluster cannot be reached, and no run of that name is kept.
    """
    if not target.is_up():
        past = await explain_past(target, name)
        if past is None:
            target.check_up(name)
        return past or {}
    try:
        return await _explain(target, name, workload, placement=placement)
    except NoSuchJobError:
        if past := await explain_past(target, name):
            return past
        raise


async def _explain(
    target: ClusterTarget, name: str, workload: Workload, *, placement: bool
) -> dict[str, Any]:
    from gangline.client.explain.expected_ends import ends_by_progress, guesses, kept_runs
    from gangline.client.explain.report import placement_report, report
    from gangline.client.explain.scheduler import published_by, see_schedulers, with_schedulers
    from gangline.client.explain.training_progress import read_progress
    from gangline.client.jobs.cluster_view import look
    from gangline.client.jobs.job_lookup import list_jobs, warnings_about
    from gangline.client.jobs.past_failure import why_failed
    from gangline.clock import now
    from gangline.cluster.runs.record import RunRecord
    from gangline.placement.explanation import NO_ROOM
    from gangline.scheduler.scheduler import DEFAULT_NAMES
    from gangline.workloads.job_state import finished, pods_by_job, scheduler_of
    from gangline.workloads.start_gates import gates_of

    async with open_client(target) as client:
        namespace = client.connection.namespace
        view = await look(client)
        subject = await _find(client, view, name, namespace)
        seen = await see_schedulers(client, target, subject.pods)
        view = view.as_seen_by(published_by(seen))
        if workload.levels:
            view = view.with_levels(tuple(level.label for level in workload.levels))
        warnings = await warnings_about(client, namespace, subject.pods)
        claims = await _claims(client, namespace, subject.pods)
        complaints = await _complaints(client, view, subject)
        measured = await read_progress(client, subject.pods) if placement else None
        waits = view.waiting() and not view.lacking
        progress = await ends_by_progress(client, view) if waits else {}
        jobs = await list_jobs(client, None) if waits else []
        why = await why_failed(client, subject.job, subject.pods) if subject.job else None
        definitions = await _definitions(client) if subject.job else []
    gates = gates_of(
        subject.job,
        subject.pods,
        claims=claims,
        warnings=warnings,
        complaints=complaints,
        now=now(),
        schedulers={DEFAULT_NAMES[0]} | {one.name for one in seen if one.is_ours or one.state == "gone"},
    )
    answering = set(DEFAULT_NAMES if target.is_local else DEFAULT_NAMES[:1])
    answering |= {scheduler_of(pod) for pod in subject.pods}
    over = {f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in jobs if finished(job)}
    asked = gates, answering, workload, now(), over
    value = report(subject.title, subject.job, subject.pods, view, *asked)
    if value.get("reason") in NO_ROOM and not value["mayStart"]:
        pairs = zip(jobs, pods_by_job(jobs, view.pods), strict=True)
        records = [RunRecord(job=job, pods=pods) for job, pods in pairs]
        for guess in guesses(view, records, kept_runs(target), progress, now()):
            other = report(subject.title, subject.job, subject.pods, guess.view, *asked)
            value |= {guess.field: other.get("mayStart"), "estimatedBy": guess.by}
    value = with_schedulers(value, seen) | {"definitions": definitions}
    if why:
        value["message"] = str(why)
    if placement:
        value["placement"] = placement_report(subject.pods, view, workload, measured)
    return value


async def _definitions(client: ObjectClient) -> list[str]:
    """Return what is wrong with the definition by which jobs are read."""
    from gangline.api.crds import mpijob_crd
    from gangline.kube.definitions import find_strangers

    return [verdict.message for verdict in await find_strangers(client, [mpijob_crd()])]


async def _complaints(client: ObjectClient, view: ClusterView, subject: Subject) -> list[Obj]:
    """Return warnings about a job and its launcher; asked for only while it lacks pods."""
    from gangline.api.resources import EVENTS, JOBS
    from gangline.kube.errors import ApiError
    from gangline.workloads.kinds import kind_of

    if subject.job is None:
        return []
    meta = subject.job["metadata"]
    group = view.groups.get(f"{meta.get('namespace')}/{meta['name']}")
    if len(subject.pods) >= (group.min_member if group else 1):
        return []
    found: list[Obj] = []
    primary = kind_of(subject.job).primary
    makers = [(subject.job["kind"], meta["name"])]
    makers += [(JOBS.kind, f"{meta['name']}-{primary}")] if primary else []  # a launcher has a Job of its own
    for kind, name in makers:
        selector = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        try:
            found += (await client.list(EVENTS, meta.get("namespace"), field_selector=selector)).items
        except ApiError:  # not everybody may read events
            return []
    since = meta.get("creationTimestamp") or ""  # one of the same name may have been there before
    return [event for event in found if (event.get("lastTimestamp") or since) >= since]


async def _claims(client: ObjectClient, namespace: str, pods: list[Obj]) -> list[Obj]:
    """Return the claims of the namespace, asked for only when a pod names one."""
    from gangline.api.resources import PERSISTENT_VOLUME_CLAIMS
    from gangline.kube.errors import ApiError

    volumes = (volume for pod in pods for volume in pod["spec"].get("volumes") or [])
    if not any(volume.get("persistentVolumeClaim") for volume in volumes):
        return []
    try:
        return (await client.list(PERSISTENT_VOLUME_CLAIMS, namespace)).items
    except ApiError:
        return []


async def _find(client: ObjectClient, view: ClusterView, name: str, namespace: str) -> Subject:
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
