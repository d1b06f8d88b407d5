"""Explain a job: what is read of a cluster for it, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangline.client.explain.past import explain_past
from gangline.client.explain.subject import Subject, find_by_labels, find_in
from gangline.client.jobs.job_lookup import NoSuchJobError
from gangline.client.target import ClusterTarget, open_client

if TYPE_CHECKING:
    from gangline.client.explain.scheduler import SchedulerLiveness
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.kube.verbs import ObjectClient
    from gangline.placement import Workload
    from gangline.workloads.outcome import Cause
    from gangline.workloads.start_gates import StartGate

Obj = dict[str, Any]

ESTIMATED_PODS_MAX = 5_000
"""Where no more pods run all of them are read, to estimate when there is room that no limit frees."""


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
        async with open_client(target) as client:
            value = None if placement else await _explain_near(client, target, name, workload)
            return value or await _explain_by_all(client, target, name, workload, placement=placement)
    except NoSuchJobError:
        if past := await explain_past(target, name):
            return past
        raise


@dataclass(frozen=True, slots=True)
class _Around:
    """What is read beside pods, nodes and gangs.

    Attributes:
        gates: that must open before there can be room.
        why: a job failed.
        definitions: what is wrong with them.
    """

    gates: list[StartGate]
    why: Cause | None
    definitions: list[str]

    def completed(self, value: Obj, seen: Sequence[SchedulerLiveness]) -> Obj:
        """Return a report with what is known of schedulers, definitions and the failure."""
        from gangline.client.explain.scheduler import with_schedulers

        value = with_schedulers(value, seen) | {"definitions": self.definitions}
        return value | {"message": str(self.why)} if self.why else value


async def _explain_near(
    client: ObjectClient, target: ClusterTarget, name: str, workload: Workload
) -> Obj | None:
    """Return what the scheduler says of a job that waits, or what the pods say of one that does not.

    None where that is not enough. Cost: some 15 requests, however large the cluster is.
    """
    from gangline.client.explain.asking import ask
    from gangline.client.explain.report import report, waiting_gangs
    from gangline.client.explain.scheduler import see_schedulers
    from gangline.client.jobs.cluster_view import look_near
    from gangline.clock import format_time, now
    from gangline.placement.explanation import NO_ROOM
    from gangline.scheduler.explained.answers import WhyQuestion

    subject = await find_by_labels(client, name, client.connection.namespace)
    if subject is None:
        return None
    view = await look_near(client, subject.pods)
    if subject.job is None:
        gang = subject.title.partition(" ")[2]
        subject = replace(subject, pods=[pod for pod in subject.pods if view.gang_of(pod) == gang])
    keys = waiting_gangs(subject.pods, view)
    if subject.job is None and not subject.pods:
        return None
    if not keys:
        around = await _around(client, subject, view, [])
        return around.completed(
            report(subject.title, subject.job, subject.pods, view, around.gates, (), workload, now()), []
        )
    seen = await see_schedulers(client, target, subject.pods)
    where = seen[0].answers_at if len(seen) == 1 else None
    levels = tuple(level.label for level in workload.levels)
    if where is None or (levels and seen[0].published and levels != seen[0].published.levels):
        return None
    answer = await ask(client, where, WhyQuestion(gang=keys[0], workload=workload))
    told = answer.explanation if answer is not None else None
    if answer is None or told is None:
        return None
    if told.reason in NO_ROOM and told.may_start is None and answer.pods <= ESTIMATED_PODS_MAX:
        return None  # an estimate by the history of jobs needs all of them
    around = await _around(client, subject, view, seen)
    asked = around.gates, (), workload, now()
    value = report(subject.title, subject.job, subject.pods, view, *asked, told=told)
    value["answered"] = {"by": answer.holder, "asOf": format_time(answer.as_of)}
    return around.completed(value, seen)


async def _explain_by_all(
    client: ObjectClient, target: ClusterTarget, name: str, workload: Workload, *, placement: bool
) -> Obj:
    """Return what all pods and nodes of the cluster say about a job."""
    from gangline.client.explain.expected_ends import ends_by_progress, guesses, kept_runs
    from gangline.client.explain.report import placement_report, report
    from gangline.client.explain.scheduler import published_by, see_schedulers
    from gangline.client.explain.suspension import with_services
    from gangline.client.explain.training_progress import read_progress
    from gangline.client.jobs.cluster_view import look
    from gangline.client.jobs.job_lookup import list_jobs
    from gangline.clock import now
    from gangline.cluster.runs.record import RunRecord
    from gangline.placement.explanation import NO_ROOM
    from gangline.scheduler.explained.published import DEFAULT_NAMES
    from gangline.workloads.job_state import finished, pods_by_job, scheduler_of

    view = await look(client)
    subject = await find_in(client, view, name, client.connection.namespace)
    seen = await see_schedulers(client, target, subject.pods)
    view = view.as_seen_by(published_by(seen))
    if workload.levels:
        view = view.with_levels(tuple(level.label for level in workload.levels))
    around = await _around(client, subject, view, seen)
    measured = await read_progress(client, subject.pods) if placement else None
    waits = view.waiting() and not view.lacking
    progress = await ends_by_progress(client, view) if waits else {}
    jobs = await list_jobs(client, None) if waits else []
    pairs = zip(jobs, pods_by_job(jobs, view.pods), strict=True)
    records = [RunRecord(job=job, pods=pods) for job, pods in pairs]
    view = with_services(view, records)
    answering = set(DEFAULT_NAMES if target.is_local else DEFAULT_NAMES[:1])
    answering |= {scheduler_of(pod) for pod in subject.pods}
    over = {f"{job['metadata']['namespace']}/{job['metadata']['name']}" for job in jobs if finished(job)}
    asked = around.gates, answering, workload, now(), over
    value = report(subject.title, subject.job, subject.pods, view, *asked)
    if value.get("reason") in NO_ROOM and not value["mayStart"]:
        for guess in guesses(view, records, kept_runs(target), progress, now()):
            other = report(subject.title, subject.job, subject.pods, guess.view, *asked)
            value |= {guess.field: other.get("mayStart"), "estimatedBy": guess.by}
    value = around.completed(value, seen)
    if placement:
        value["placement"] = placement_report(subject.pods, view, workload, measured)
    return value


async def _around(
    client: ObjectClient, subject: Subject, view: ClusterView, seen: Sequence[SchedulerLiveness]
) -> _Around:
    from gangline.client.jobs.job_lookup import warnings_about
    from gangline.client.jobs.past_failure import why_failed
    from gangline.clock import now
    from gangline.scheduler.explained.published import DEFAULT_NAMES
    from gangline.workloads.start_gates import gates_of

    namespace, job = client.connection.namespace, subject.job
    gates = gates_of(
        job,
        subject.pods,
        claims=await _claims(client, namespace, subject.pods),
        warnings=await warnings_about(client, namespace, subject.pods),
        complaints=await _complaints(client, view, subject),
        now=now(),
        schedulers={DEFAULT_NAMES[0]} | {one.name for one in seen if one.is_ours or one.state == "gone"},
    )
    why = await why_failed(client, job, subject.pods) if job else None
    return _Around(gates, why, await _definitions(client) if job else [])


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
