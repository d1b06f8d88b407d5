"""The reason why a job waits, and what its placement is worth, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.client.explain.suspension import ends_by
from gangline.clock import format_time, parse_time
from gangline.placement import Comparison, Explanation, NodeTable, Outlook, Workload, compare, explain
from gangline.placement.allocations import Allocations
from gangline.placement.explanation import in_one_line
from gangline.workloads.job_state import finished
from gangline.workloads.pending import pending_reason_of
from gangline.workloads.requests import GPU, gpu_count
from gangline.workloads.unconfirmed_end import TERMINATING

if TYPE_CHECKING:
    from gangline.client.explain.training_progress import TrainingProgress
    from gangline.client.jobs.cluster_view import ClusterView
    from gangline.workloads.start_gates import StartGate

Obj = dict[str, Any]


def report(
    title: str,
    job: Obj | None,
    pods: Sequence[Obj],
    view: ClusterView,
    gates: Sequence[StartGate],
    schedulers: Collection[str],
    workload: Workload,
    now: datetime,
    over: Collection[str] = (),
    told: Explanation | None = None,
) -> dict[str, Any]:
    """Return all that is known about why a job waits, as plain values.

    Args:
        title: of the job.
        job: in wire form, if there is one.
        pods: of it, in wire form.
        view: of the cluster; where `told` is given, of these pods alone.
        gates: that must open first.
        schedulers: names of those whose pods wait beside it.
        workload: for which steps are predicted.
        now: the time.
        over: the finished jobs.
        told: what the scheduler itself has answered.
    """
    living = [pod for pod in pods if pod["metadata"]["uid"] in view.views]
    unplaced = [pod for pod in living if not pod["spec"].get("nodeName")]
    keys = waiting_gangs(living, view)
    found = told
    if found is None and not view.lacking:
        found = _first(view, keys, schedulers, workload, now, over)
    value: dict[str, Any] = {
        "job": title,
        "state": _state(job, living, unplaced, gates),
        "pods": len(living),
        "waitingPods": len(unplaced),
        "gates": [{"kind": gate.kind, "message": gate.message, "pods": list(gate.pods)} for gate in gates],
        "unhealthy": _unhealthy(living, view),
        "models": view.snapshot.models_under({pod["metadata"]["uid"] for pod in living}),
    }
    verdict = next((view.verdicts[key] for key in keys if key in view.verdicts), None)
    if verdict is not None and any(gate.kind == "OtherScheduler" for gate in gates):
        value["verdict"] = {"type": verdict.type, "message": verdict.message}
    if view.lacking and told is None:
        return value | _told(living, view)
    if found is None:
        return value
    return value | {
        "gang": found.gang,
        "otherGangs": len(keys) - 1,
        "reason": found.reason,
        "message": found.message,
        "fix": found.fix,
        "fixes": [
            {
                "kind": fix.kind,
                "text": fix.text,
                "line": in_one_line([fix]),
                "speed": round(fix.speed, 3) if fix.speed is not None else None,
                "at": format_time(fix.at) if fix.at else None,
            }
            for fix in found.fixes
        ],
        "predictedFor": workload.name,
        "queue": found.queue,
        "position": found.position,
        "waitingInQueue": found.waiting,
        "mayStart": format_time(found.may_start) if found.may_start else None,
        "mayPass": found.may_pass,
        "blockers": _blockers(found, now),
        "suspended": _suspended(found, view, now),
    }


def waiting_gangs(pods: Sequence[Obj], view: ClusterView) -> list[str]:
    """Return the keys of the gangs of pods that wait for a scheduler, in their order."""
    specs = ((pod, pod["spec"]) for pod in pods if pod["metadata"]["uid"] in view.views)
    waiting = (pod for pod, spec in specs if not spec.get("nodeName") and not spec.get("schedulingGates"))
    return list(dict.fromkeys(view.gang_of(pod) for pod in waiting))


def _blockers(found: Explanation, now: datetime) -> list[dict[str, str | int | None]]:
    return [
        {
            "gang": one.key,
            "state": "runs" if one.is_running else "waits",
            "priority": one.priority,
            "since": one.since,
            "ageSeconds": int((now - parse_time(one.since)).total_seconds()) if one.since else None,
        }
        for one in found.blockers
    ]


def _suspended(found: Explanation, view: ClusterView, now: datetime) -> list[dict[str, str | bool | None]]:
    """Return who is suspended for a gang, and by when pods that are on their way out have ended."""
    ends = {gang: ends_by(view, gang, now) if found.is_begun else None for gang in found.suspended}
    return [
        {"gang": gang, "isBegun": found.is_begun, "endsBy": format_time(end) if end else None}
        for gang, end in ends.items()
    ]


def _told(pods: Sequence[Obj], view: ClusterView) -> dict[str, Any]:
    """Return what scheduler and kubelet wrote on the pods, for who may not see what they saw."""
    told = next((reason for pod in pods if (reason := pending_reason_of(pod))), None)
    value: dict[str, Any] = {"lacking": list(view.lacking)}
    return value | ({"reason": told.kind, "message": str(told)} if told else {})


def _unhealthy(pods: Sequence[Obj], view: ClusterView) -> list[dict[str, Any]]:
    """Return which unhealthy GPUs pods hold."""
    nodes = {node.name: node.gpus for node in view.snapshot.nodes}
    found = []
    for pod in pods:
        seen = view.views[pod["metadata"]["uid"]]
        gpus = nodes.get(seen.node_name)
        sick = gpus.mask_of(seen.gpu_uuids) & ~gpus.healthy if gpus is not None else 0
        found += [
            {"pod": pod["metadata"]["name"], "node": seen.node_name, "index": index}
            for bit, index in enumerate(gpus.indices if gpus is not None else ())
            if sick >> bit & 1
        ]
    return found


def _first(
    view: ClusterView,
    keys: Sequence[str],
    schedulers: Collection[str],
    workload: Workload,
    now: datetime,
    over: Collection[str],
) -> Explanation | None:
    pods = view.waiting(schedulers)
    for key in keys:
        found = explain(
            view.snapshot,
            pods,
            key,
            now=now,
            policy=view.policy,
            groups=view.groups,
            workload=workload,
            over=over,
        )
        if found is not None:
            return found
    return None


def _state(
    job: Obj | None, living: Sequence[Obj], unplaced: Sequence[Obj], gates: Sequence[StartGate]
) -> str:
    if job is not None and (over := finished(job)):
        return over.lower()
    if any(gate.kind == "Suspended" for gate in gates):
        return "suspended"
    if unplaced or any(gate.kind == TERMINATING for gate in gates):
        return "waits"
    phases = {(pod.get("status") or {}).get("phase") for pod in living}
    return "runs" if living and phases == {"Running"} else "starts" if living else "has no pods"


def placement_report(
    pods: Sequence[Obj], view: ClusterView, workload: Workload, measured: TrainingProgress | None = None
) -> dict[str, Any]:
    """Return where a job's GPUs are and what that is worth, beside the best and the naive choice.

    Args:
        pods: of the job, in the order of their ranks.
        view: of the cluster.
        workload: what is predicted.
        measured: what the training itself reports, where it does.
    """
    view.check_seen("show what a placement is worth")
    placed = [view.views[pod["metadata"]["uid"]] for pod in pods if pod["metadata"]["uid"] in view.views]
    allocations = Allocations(view.snapshot.pods, view.groups)
    table = NodeTable.of(
        view.snapshot.nodes, view.snapshot.pods, view.policy.levels, claimed=view.snapshot.claimed
    )
    with_gpus = [pod for pod in placed if gpu_count(pod.request)]
    used = {pod.node_name for pod in with_gpus}
    is_known = all(pod.request.get(GPU) for pod in with_gpus)  # links are of NVIDIA's whole GPUs alone
    if with_gpus and is_known and all(pod.node_name for pod in with_gpus):
        found = compare(table, allocations, with_gpus, workload)
    else:
        found = Comparison(None, None, None)
    return {
        "gpus": sum(gpu_count(pod.request) for pod in with_gpus),
        "isOver": bool(pods) and not placed,
        "isPlaced": bool(with_gpus) and all(pod.node_name for pod in with_gpus),
        "simulated": any(node.gpus and node.gpus.source == "simulated" for node in table.views),
        "predictedFor": workload.name,
        "oneGpuStepSeconds": round(workload.training.compute_s, 6),
        "chosen": _outlook(found.chosen),
        "best": _outlook(found.best),
        "naive": _outlook(found.naive),
        "speedOfBest": _speed_of_best(found),
        "assumed": sorted({node.gpus.machine.guess for node in table.views if node.gpus} - {""})
        if found.chosen
        else [],
        "measured": {"stepSeconds": round(measured.step_s, 6), "overSteps": measured.over}
        if measured and measured.step_s is not None
        else None,
        "rates": {
            node.name: msgspec.to_builtins(node.gpus.rates)
            for node in table.views
            if node.name in used and node.gpus is not None and node.gpus.rates is not None
        },
        "ways": {
            way: sorted(node.name for node in table.views if node.name in used and node.way == way)
            for way in sorted({node.way for node in table.views if node.name in used and node.way})
        },
        "nodesByPlugin": sorted({pod.node_name for pod in with_gpus if pod.node_name and not pod.gpu_uuids}),
    }


def _speed_of_best(found: Comparison) -> list[float] | None:
    """Return the share of the best placement's speed: with nothing hidden, with all."""
    if found.chosen is None or found.best is None:
        return None
    chosen, best = found.chosen.prediction, found.best.prediction
    shares = best.step_s / chosen.step_s, best.hidden_step_s / chosen.hidden_step_s
    return [round(min(share, 1.0), 3) for share in shares]


def _outlook(found: Outlook | None) -> dict[str, Any] | None:
    if found is None:
        return None
    reduced = found.prediction.all_reduce
    bus = reduced.bus_gb_s
    return {
        "nodes": [{"node": node, "ring": list(ring)} for node, ring in found.nodes],
        "busGBPerSecond": round(bus, 2) if bus != float("inf") else None,
        "allReduceSeconds": round(reduced.seconds, 6),
        "algorithm": reduced.algorithm,
        "bottleneck": reduced.bottleneck,
        "stepSeconds": round(found.step_s, 6),
        "hiddenStepSeconds": round(found.prediction.hidden_step_s, 6),
        "efficiency": round(found.prediction.efficiency, 4),
    }
