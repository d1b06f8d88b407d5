"""What keeps a job from starting apart from room: suspension, gates, claims, images. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gangline.units import plural
from gangline.workloads.job_state import KUBE_QUEUE_ANNOTATION, finished, is_suspended, scheduler_of
from gangline.workloads.kinds import kind_of
from gangline.workloads.pending import UNSCHEDULABLE, one_line, pending_reason_of
from gangline.workloads.suspension import KUEUE_QUEUE_LABEL, why_suspended
from gangline.workloads.unconfirmed_end import UnconfirmedEnd, unconfirmed_end

Obj = dict[str, Any]

KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
SENDING_ANNOTATION = "gangline.dev/sending"
"""On a job whose code is on its way: ``gangline run`` takes it away together with the suspension."""
NOT_CREATED = ("FailedCreate", "MPIJobFailed", "ErrResourceExists", "TrainingRuntimeNotFound")
"""Reasons of warnings about a job that lacks pods: of the Job controller, and of operators."""


@dataclass(frozen=True, slots=True)
class StartGate:
    """One thing that must be opened by somebody else.

    Attributes:
        kind: ``Suspended``, ``NoPods``, ``QuotaExceeded``, ``NotMade``, ``SchedulingGated``,
            ``UnboundClaim``, ``OtherScheduler``, ``Terminating``, or the word of Kubernetes for what
            holds a container up (``ImagePullBackOff``).
        message: what it is, and who opens it.
        pods: names of the pods that it holds.
    """

    kind: str
    message: str
    pods: tuple[str, ...] = ()


def gates_of(
    job: Obj | None,
    pods: Sequence[Obj],
    *,
    claims: Iterable[Obj] = (),
    warnings: Sequence[Obj] = (),
    complaints: Sequence[Obj] = (),
    schedulers: Collection[str] = (),
    now: datetime | None = None,
) -> list[StartGate]:
    """Return the gates of a job, those that must open first in front.

    Args:
        job: in wire form; None where only its pods are known.
        pods: of the job.
        claims: PersistentVolumeClaims of the namespace.
        warnings: events about pods.
        complaints: warnings about the job and its launcher.
        schedulers: names that are answered for here; empty for all.
        now: the time, by which deleted pods should be gone; None does not look.
    """
    found = [_suspended(job)] if job else []
    living = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    if job and not found[0] and not living and not finished(job):
        found.append(_no_pods(job))
    if job and not finished(job) and not found[0]:
        found.append(not_made(complaints))
    found += _scheduling_gates(living)
    found += _unbound_claims(living, claims)
    found.append(_other_scheduler(living, schedulers))
    found += _held(living, warnings)
    found.append(_unconfirmed_end(living, now) if now else None)
    return [gate for gate in found if gate is not None]


def _suspended(job: Obj) -> StartGate | None:
    spec = kind_of(job).spec(job)
    metadata = job["metadata"]
    queue = (metadata.get("labels") or {}).get(KUEUE_QUEUE_LABEL)
    if (metadata.get("annotations") or {}).get(KUBE_QUEUE_ANNOTATION) == "true":
        return StartGate(
            "Suspended", f"kube-queue holds the job until it takes `{KUBE_QUEUE_ANNOTATION}` away"
        )
    if not is_suspended(job):
        return None
    if (metadata.get("annotations") or {}).get(SENDING_ANNOTATION):
        return StartGate(
            "Suspended",
            "`gangline run` has not sent all of its code; where that command was ended, delete the job "
            "and run it again",
        )
    if why := why_suspended(metadata.get("annotations") or {}):
        return StartGate("Suspended", f"the scheduler has suspended it: it {why}")
    if queue:
        return StartGate(
            "Suspended",
            f"suspended by Kueue: it waits in queue `{queue}`; `kubectl get workloads -n "
            f"{metadata.get('namespace', 'default')}` says for what quota",
        )
    field = "runPolicy.suspend" if (spec.get("runPolicy") or {}).get("suspend") else "suspend"
    return StartGate("Suspended", f"`spec.{field}` is true; whoever set it must set it to false")


def _no_pods(job: Obj) -> StartGate:
    conditions = (job.get("status") or {}).get("conditions") or []
    waiting = [one for one in conditions if (one.get("type"), one.get("status")) == ("Waiting", "True")]
    message = str((waiting or conditions)[-1].get("message") or "") if conditions else ""
    told = f"; the last that was said: {message}" if message else ""
    return StartGate("NoPods", f"{kind_of(job).maker} has not made its pods yet{told}")


def not_made(complaints: Sequence[Obj]) -> StartGate | None:
    """Return that pods cannot be made, by the newest warning that says so."""
    for event in sorted(complaints, key=lambda one: one.get("lastTimestamp") or "", reverse=True):
        message = one_line(event.get("message") or "")
        # exceeded quota: team-quota, requested: pods=1 (Kubernetes' own words, in its answer to a creation)
        if "exceeded quota" in message:
            return StartGate(
                "QuotaExceeded", f"a ResourceQuota of its namespace allows no more pods: {message}"
            )
        if event.get("reason") in NOT_CREATED:
            return StartGate("NotMade", f"pods of it cannot be made: {message}")
    return None


def _scheduling_gates(pods: Sequence[Obj]) -> list[StartGate]:
    by_name: dict[str, list[str]] = {}
    for pod in pods:
        for gate in pod["spec"].get("schedulingGates") or []:
            by_name.setdefault(str(gate.get("name")), []).append(pod["metadata"]["name"])
    gates = []
    for name, held in sorted(by_name.items()):
        who = (
            "Kueue takes it away on admission" if name in KUEUE_GATES else "whoever set it must take it away"
        )
        gates.append(
            StartGate(
                "SchedulingGated",
                f"scheduling gate `{name}` on {plural(len(held), 'pod')}; {who}",
                tuple(held),
            )
        )
    return gates


def _unbound_claims(pods: Sequence[Obj], claims: Iterable[Obj]) -> list[StartGate]:
    phases = {claim["metadata"]["name"]: (claim.get("status") or {}).get("phase") for claim in claims}
    known = bool(phases)
    held: dict[str, list[str]] = {}
    for pod in pods:
        for volume in pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and known and phases.get(name) != "Bound" and not pod["spec"].get("nodeName"):
                held.setdefault(name, []).append(pod["metadata"]["name"])
    return [
        StartGate(
            "UnboundClaim",
            f"PersistentVolumeClaim `{name}` is {phases.get(name) or 'missing'}, not Bound",
            tuple(names),
        )
        for name, names in sorted(held.items())
    ]


def _other_scheduler(pods: Sequence[Obj], schedulers: Collection[str]) -> StartGate | None:
    others = {
        scheduler_of(pod): pod
        for pod in pods
        if schedulers and scheduler_of(pod) not in schedulers and not pod["spec"].get("nodeName")
    }
    if not others:
        return None
    name = min(others)
    group = (others[name]["spec"].get("schedulingGroup") or {}).get("podGroupName")
    by = f", together by PodGroup `{group}`," if group else ","
    return StartGate(
        "OtherScheduler",
        f"`{name}` places its pods{by} and not Gangline; what follows is what Gangline's rules say",
        (others[name]["metadata"]["name"],),
    )


def _unconfirmed_end(pods: Sequence[Obj], now: datetime) -> StartGate | None:
    ends = [
        UnconfirmedEnd(meta["name"], node, meta["deletionTimestamp"])
        for pod in pods
        if (meta := pod["metadata"]).get("deletionTimestamp") and (node := pod["spec"].get("nodeName"))
    ]
    late, _ = unconfirmed_end(ends, now)
    return StartGate(late.kind, str(late), tuple(end.pod for end in ends)) if late else None


def _held(pods: Sequence[Obj], warnings: Sequence[Obj]) -> list[StartGate]:
    """Return what holds containers up on nodes: images, mounts, GPUs that the node has not free."""
    gates: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if not pod["spec"].get("nodeName"):
            continue
        found = pending_reason_of(pod, warnings)
        if found is not None and found.pod and found.kind != UNSCHEDULABLE:
            gates.setdefault((found.kind, found.message), []).append(found.pod)
    return [
        StartGate(reason, f"{plural(len(names), 'pod')} on a node: {message or reason}", tuple(names))
        for (reason, message), names in gates.items()
    ]
