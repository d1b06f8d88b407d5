"""One job as the page shows it: state, pods, conditions, events, file, and what can be done with it. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

import yaml

from gangline.jobs.job_changes import WORKER, scaling, suspension, workers_of
from gangline.page.rows import JobRow
from gangline.workloads.job_state import is_suspended
from gangline.workloads.job_view import JobView
from gangline.workloads.kinds import kind_of

Obj = dict[str, Any]

_DROPPED: Final = ("managedFields",)
_EVENTS_MAX: Final = 200


def job_detail(
    row: JobRow, view: JobView, job: Obj, events: Iterable[Obj], options: str, kube_options: str
) -> Obj:
    """Return everything about one job but its log, curves and explanation.

    Args:
        row: of the list.
        view: with its pods.
        job: in wire form.
        events: about it and its pods.
        options: that lead a command of Gangline to the cluster, with a space in front.
        kube_options: the same for kubectl.
    """
    workers = workers_of(job)
    return {
        "key": row.key,
        "row": row,
        "instances": [
            {
                "name": one.name,
                "status": one.status,
                "chief": one.is_primary,
                "gpus": one.gpus,
                "node": one.node,
                "ip": one.ip,
                "restarts": one.restarts,
                "created": one.created,
            }
            for one in view.instances
        ],
        "conditions": [
            {
                "type": str(one.get("type", "")),
                "status": str(one.get("status", "")),
                "reason": str(one.get("reason") or ""),
                "message": str(one.get("message") or ""),
                "time": str(one.get("lastTransitionTime") or ""),
            }
            for one in (job.get("status") or {}).get("conditions") or []
        ],
        "events": [_event(one) for one in _newest(events)],
        "manifest": _manifest(job),
        "commands": _commands(job, options, kube_options),
        "scalable": None if workers is None else {"role": WORKER, "replicas": workers},
        "suspended": is_suspended(job) if suspension(job, is_wanted=True) else None,
    }


def _commands(job: Obj, options: str, kube_options: str) -> dict[str, str]:
    metadata = job["metadata"]
    namespace = metadata.get("namespace", "default")
    where = options + (f" -n {namespace}" if namespace != "default" else "")
    name = f"{kind_of(job).words[0]}/{metadata['name']}"
    resource = kind_of(job).resource
    kubectl = f"kubectl{kube_options} -n {namespace} patch {resource.plural}.{resource.group}".rstrip(".")
    kubectl += f" {metadata['name']} --type merge -p "

    def patch(body: Obj | None) -> str:
        return kubectl + shlex.quote(json.dumps(body, separators=(",", ":"))) if body else ""

    found = {
        "explain": f"gangline explain {name} --placement{where}",
        "logs": f"gangline logs -f {name}{where}",
        "manifest": f"gangline get {name} -o yaml{where}",
        "delete": f"gangline delete {name}{where}",
        "shell": f"gangline shell {name} --rank 0{where}",
        "suspend": patch(suspension(job, is_wanted=True)),
        "resume": patch(suspension(job, is_wanted=False)),
        "scale": patch(scaling(job, 0)).replace('"replicas":0', '"replicas":COUNT'),
    }
    if found["suspend"]:
        found["restart"] = f"{found['suspend']} && {found['resume']}"
    return {key: text for key, text in found.items() if text}


def _manifest(job: Obj) -> str:
    metadata = {key: value for key, value in job["metadata"].items() if key not in _DROPPED}
    shown = {"apiVersion": job.get("apiVersion"), "kind": job["kind"], "metadata": metadata}
    shown |= {key: job[key] for key in ("spec", "status") if key in job}
    return str(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110))


def _newest(events: Iterable[Obj]) -> Sequence[Obj]:
    return sorted(events, key=_time, reverse=True)[:_EVENTS_MAX]


def _time(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or "")


def _event(event: Obj) -> Obj:
    about = event.get("involvedObject") or {}
    return {
        "type": str(event.get("type") or "Normal"),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or ""),
        "about": f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        "time": _time(event),
        "count": int(event.get("count") or 1),
    }
