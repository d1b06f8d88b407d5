"""Which scheduler a job's pods wait for, and whether it lives: by its Lease, else by what it did to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal

from gangline.api.core import DEFAULT_SCHEDULER
from gangline.api.pod_group import GANGLINE_SCHEDULER
from gangline.api.resources import CLUSTER_ROLE_BINDINGS, LEASES, SERVICE_ACCOUNTS
from gangline.clock import now, parse_time
from gangline.cluster.daemon.cluster_facts import load_facts, policy_of
from gangline.kube.errors import ApiError
from gangline.scheduler.explained.answers import AnswersAt, answers_at
from gangline.scheduler.explained.published import DEFAULT_NAMES, LEASE_NAME, LEASE_NAMESPACE, Published
from gangline.topology.network import DEFAULT_LEVELS
from gangline.units import format_age
from gangline.workloads.job_state import scheduler_of

if TYPE_CHECKING:
    from gangline.client.target import ClusterTarget
    from gangline.kube.verbs import ObjectClient

Obj = dict[str, Any]

KUBE_SCHEDULER_LEASE = ("kube-scheduler", "kube-system")
"""Name and namespace of its Lease (its defaults, ``resourceName`` and ``resourceNamespace``)."""

LOOKED_AT_S = 10.0
"""A scheduler that runs has bound a pod by then, or said why not."""

RENEWED_S = 4.0
"""Holders renew within this; a Lease that looks dead is read again, for clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class SchedulerLiveness:
    """One scheduler that pods wait for, as far as the cluster shows it.

    Attributes:
        name: ``spec.schedulerName`` of the pods.
        state: whether it runs; ``unknown`` where nothing tells.
        message: how that is known, to follow its name.
        is_ours: whether it is known to be Gangline's.
        published: its options; None where it does not say.
        start: the command that starts one for these pods; empty where another program should.
        answers_at: where it can be asked; None where it cannot.
    """

    name: str
    state: Literal["runs", "gone", "unknown"]
    message: str
    is_ours: bool = False
    published: Published | None = None
    start: str = ""
    answers_at: AnswersAt | None = None


async def see_schedulers(
    client: ObjectClient, target: ClusterTarget, pods: Sequence[Obj]
) -> list[SchedulerLiveness]:
    """Return what is known of the schedulers that some of these pods wait for.

    A Lease that looks dead costs 4 seconds, in which a living holder renews it.
    """
    waiting: dict[str, list[Obj]] = {}
    for pod in pods:
        if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
            waiting.setdefault(scheduler_of(pod), []).append(pod)
    if not waiting:
        return []
    built_in = DEFAULT_NAMES if target.is_local or await _is_one_machine(client) else ()
    policy = policy_of(load_facts(target.paths) if target.is_local else None)
    own = Published.from_policy(policy, DEFAULT_NAMES, "")
    message = "runs: it is part of the one-machine cluster"
    namespace = target.scheduler_namespace
    if not namespace and not waiting.keys() <= set(built_in):
        namespace = await scheduler_namespace(client)
    return [
        SchedulerLiveness(name, "runs", message, is_ours=True, published=own)
        if name in built_in
        else await _see(client, name, namespace, held, _start(name, namespace, target))
        for name, held in sorted(waiting.items())
    ]


async def scheduler_namespace(client: ObjectClient) -> str:
    """Return where Gangline's scheduler was installed, and has its Lease; the usual one where none tells.

    The binding of the scheduler's rights tells, which nobody writes who may not give these rights: a Lease or
    a Deployment of its name may be anybody's.
    """
    try:
        binding = await client.get(CLUSTER_ROLE_BINDINGS, GANGLINE_SCHEDULER)
    except ApiError:
        return LEASE_NAMESPACE
    accounts = (one for one in binding.get("subjects") or () if one.get("kind") == SERVICE_ACCOUNTS.kind)
    return next((one["namespace"] for one in accounts), LEASE_NAMESPACE)


async def _see(
    client: ObjectClient, name: str, namespace: str, pods: Sequence[Obj], start: str
) -> SchedulerLiveness:
    leases = await _leases(client, name, namespace)
    found = judge(name, leases, pods, now(), start=start)
    if found.state != "gone" or not leases:
        return found
    await asyncio.sleep(RENEWED_S)
    again = await _leases(client, name, namespace)
    if again == leases:
        return found
    return judge(name, again, pods, now(), start=start, was_renewed=True)


def judge(
    name: str,
    leases: Sequence[Obj] | None,
    pods: Sequence[Obj],
    moment: datetime,
    *,
    start: str = "",
    was_renewed: bool = False,
) -> SchedulerLiveness:
    """Return what Leases and waiting pods tell of a scheduler. Pure.

    Args:
        name: of the scheduler.
        leases: that may be its own, in wire form; None where they may not be read.
        pods: that wait for it.
        moment: now, by the clock of this machine.
        start: the command that starts it, if it is Gangline's.
        was_renewed: the Lease changed while it was looked at, whatever the times in it say.
    """
    own = [lease for lease in leases or () if _is_of(lease, name)]
    ours = [lease for lease in own if lease["metadata"]["name"] == LEASE_NAME]
    said = next(filter(None, map(Published.of, ours)), None)
    is_ours = said is not None or name == DEFAULT_NAMES[0]

    def liveness(state: Literal["runs", "gone", "unknown"], message: str) -> SchedulerLiveness:
        is_anothers = name == DEFAULT_SCHEDULER or (own and not is_ours)
        way = "" if state == "runs" or is_anothers else start
        return SchedulerLiveness(name, state, message, is_ours, said, way)

    if own:
        lease = max(own, key=_renewed)
        title = f"its Lease {lease['metadata']['namespace']}/{lease['metadata']['name']}"
        spec = lease.get("spec") or {}
        if not spec.get("holderIdentity"):
            return liveness("gone", f"does not run: {title} was given back, and nobody holds it")
        age_s = (moment - parse_time(_renewed(lease))).total_seconds() if _renewed(lease) else None
        if was_renewed or (age_s is not None and age_s <= float(spec.get("leaseDurationSeconds") or 15)):
            found = liveness("runs", f"runs: `{spec['holderIdentity']}` holds {title}")
            return replace(found, answers_at=answers_at(lease, gethostname()))
        ago = f"was last renewed {format_age(age_s)} ago" if age_s is not None else "was never renewed"
        return liveness("gone", f"does not run: {title} {ago}")
    lack = "no Lease of it is there" if leases is not None else "its Lease may not be read"
    if any(_was_looked_at(pod) for pod in pods):
        return liveness("unknown", f"has looked at these pods; whether it still runs is not known: {lack}")
    age_s = max((moment - parse_time(pod["metadata"]["creationTimestamp"])).total_seconds() for pod in pods)
    if age_s < LOOKED_AT_S:
        return liveness("unknown", f"may not have seen these pods yet; {lack}")
    return liveness(
        "gone", f"seems not to run: {lack}, and nobody has looked at these pods in {format_age(age_s)}"
    )


def with_schedulers(value: dict[str, Any], seen: Sequence[SchedulerLiveness]) -> dict[str, Any]:
    """Return a report with the schedulers in it; where none runs, that is the first reason. Pure."""
    if not seen:
        return value
    schedulers = [
        {"name": one.name, "state": one.state, "message": one.message, "start": one.start} for one in seen
    ]
    value = value | {"schedulers": schedulers}
    if "reason" not in value:
        return value
    fits = value["reason"] == "Fits"
    if gone := [one for one in seen if one.state == "gone"]:
        message = "there is room for it, and nobody places it" if fits else value["message"]
        ways = " and ".join(_title(one.name) for one in gone)
        fix = "; ".join(filter(None, (f"starts when {ways} runs", value["fix"])))
        return value | {"reason": "NoScheduler", "message": message, "fix": fix}
    if fits and (others := [one for one in seen if not (one.is_ours and one.state == "runs")]):
        return value | {"message": f"there is room for it: `{others[0].name}` may place it, if it runs"}
    return value


def _title(name: str) -> str:
    return f"`{name}`" + (" (kube-scheduler, of the control plane)" if name == DEFAULT_SCHEDULER else "")


def published_by(seen: Sequence[SchedulerLiveness]) -> Published:
    """Return the options that a scheduler says it has, Gangline's defaults where none says."""
    said = next(filter(None, (one.published for one in seen)), None)
    return said or Published(levels=DEFAULT_LEVELS)


def _is_of(lease: Obj, name: str) -> bool:
    called = lease["metadata"]["name"]
    said = Published.of(lease) if called == LEASE_NAME else None  # another's may say anything
    return name in said.names if said is not None else called == _lease_of(name)[0]


def _lease_of(name: str) -> tuple[str, str | None]:
    """Return name and namespace of the Lease of another's scheduler; None where it may be in any."""
    return KUBE_SCHEDULER_LEASE if name == DEFAULT_SCHEDULER else (name, None)


def _was_looked_at(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(found["type"] == "PodScheduled" and found["status"] == "False" for found in conditions)


def _renewed(lease: Obj) -> str:
    return str((lease.get("spec") or {}).get("renewTime") or "")


def _start(name: str, namespace: str, target: ClusterTarget) -> str:
    which = "" if name == DEFAULT_NAMES[0] else f" --scheduler-name {name}"
    which += "" if namespace == LEASE_NAMESPACE else f" --lock-namespace {namespace}"
    return f"gangline scheduler{target.kube_options}{which}"


async def _is_one_machine(client: ObjectClient) -> bool:
    """Whether the server is that of a one-machine cluster, reached by its kubeconfig."""
    try:
        answer = await client.request("GET", "/version")
    except ApiError:
        return False
    return "ganglineVersion" in answer


async def _leases(client: ObjectClient, name: str, namespace: str) -> list[Obj] | None:
    """Return the Leases that may be a scheduler's; None where they may not be listed.

    Args:
        client: of the cluster.
        name: of the scheduler.
        namespace: of Gangline's scheduler: in others anybody may have a Lease of its name.
    """
    wanted = {LEASE_NAME: namespace} | ({} if name == LEASE_NAME else dict([_lease_of(name)]))
    try:
        found = await asyncio.gather(
            *(
                client.list(LEASES, where, field_selector=f"metadata.name={lease}")
                for lease, where in wanted.items()
            )
        )
    except ApiError:
        return None
    return [lease for listed in found for lease in listed.items]
