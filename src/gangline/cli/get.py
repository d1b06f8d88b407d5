"""``gangline get``: one job, its instances, and on request its events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.options.job_types import qualified, type_option
from gangline.cli.options.target import target_options
from gangline.cli.output import Column, is_arena, output_option, print_ruled_table, print_table, print_value
from gangline.client.target import ClusterTarget
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectReader
    from gangline.workloads.job_view import JobView

INSTANCE_COLUMNS = (
    Column("NAME"),
    Column("STATUS"),
    Column("AGE", rank=3),
    Column("IS_CHIEF", rank=4),
    Column("GPU(Requested)", rank=5),
    Column("NODE", least=8, rank=2),
    Column("IP", rank=6, wide=True),
    Column("RESTARTS", rank=7, wide=True),
)
EVENT_COLUMNS = (
    Column("SOURCE", least=12, rank=3),
    Column("TYPE"),
    Column("AGE", rank=2),
    Column("MESSAGE", least=24),
)
GPU_COLUMNS = tuple(Column(title) for title in ("INSTANCE", "NODE(IP)", "GPU(Requested)", "GPU(IndexId)"))
EVENTS_MAX = 50


@click.command("get")
@click.argument("name", required=False, shell_complete=complete_job_name)
@click.option("-A", "--all-namespaces", is_flag=True, help="Find the job in any namespace.")
@click.option("-e", "--events", is_flag=True, help="Show the job's events and its pods'.")
@click.option("-g", "--gpus", is_flag=True, help="Show which GPUs its pods have.")
@type_option
@output_option
@target_options()
def command(
    name: str | None,
    all_namespaces: bool,
    events: bool,
    gpus: bool,
    kind: str,
    output: str | None,
    target: ClusterTarget,
) -> None:
    """Show job NAME: status, priority, duration, and its instances with their nodes.

    NAME is that of an MPIJob, else of a Job, else of a Pod; write `job/NAME` to mean one kind.
    """
    if name is None:
        raise UserError("which job?", hint="`gangline list` lists them")
    name = qualified(name, kind)
    asyncio.run(_get(target, name, all_namespaces=all_namespaces, events=events, gpus=gpus, output=output))


async def _get(
    target: ClusterTarget, name: str, *, all_namespaces: bool, events: bool, gpus: bool, output: str | None
) -> None:
    from gangline.client.jobs.gpu_kind import gpu_kind
    from gangline.client.jobs.job_lookup import open_job, pods_of
    from gangline.client.jobs.one_job import read_job
    from gangline.workloads.job_view import job_report

    async with open_job(target, name, any_namespace=all_namespaces) as place:
        job, reader = place.job, place.reader
        view = await read_job(place)
        pods = await pods_of(reader, job) if gpus or events or output in ("json", "yaml") else []
        kind = await gpu_kind(reader, [job])
        found = await _events(reader, job, pods) if events or output in ("json", "yaml") else []
    if output == "name":
        print(f"{view.kind.lower()}/{view.name}")
    elif output in ("json", "yaml"):
        print_value(job_report(view, kind) | {"events": found}, output)
    else:
        _print(view, kind, wide=output == "wide")
        if gpus and view.status != "SUCCEEDED":
            _print_gpus(view, pods)
        if events:
            _print_events(found)


async def _events(
    client: ObjectReader, job: dict[str, Any], pods: list[dict[str, Any]]
) -> list[dict[str, str]]:
    from gangline.api.resources import EVENTS, JOBS, PODS
    from gangline.clock import now, parse_time
    from gangline.units import format_age

    uids = {job["metadata"].get("uid"), *(pod["metadata"].get("uid") for pod in pods)}
    items = (await client.list(EVENTS, job["metadata"].get("namespace"))).items
    rows = []
    replicas = tuple(f"{job['metadata']['name']}-{role}" for role in ("launcher", "worker-"))
    created = job["metadata"].get("creationTimestamp") or ""
    for event in items:
        regarding = event.get("involvedObject") or event.get("regarding") or {}
        when = (
            event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
        )
        # The launcher's Job is not read, and pods may be gone: known by their names; before this job they
        # were another's.
        of_replica = str(regarding.get("name", "")).startswith(replicas)
        is_owned = of_replica and regarding.get("kind") in (JOBS.kind, PODS.kind) and (when or "") >= created
        if regarding.get("uid") not in uids and not is_owned:
            continue
        rows.append(
            {
                "source": f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
                "type": event.get("type", ""),
                "time": when or "",
                "age": format_age((now() - parse_time(when)).total_seconds()) if when else "",
                "message": f"[{event.get('reason', '')}] {event.get('message', '')}",
            }
        )
    return sorted(rows, key=lambda row: row["time"])[-EVENTS_MAX:]


def _print(view: JobView, kind: str, *, wide: bool) -> None:
    from gangline.client.jobs.gpu_kind import gpu_cell
    from gangline.units import format_age

    lines = {
        "Name": view.name,
        "Status": view.status,
        "Reason": view.reason,
        "Namespace": view.namespace,
        "Priority": view.priority or "N/A",
        "Trainer": view.trainer,
        "Duration": format_age(view.duration_s),
        "CreateTime": view.created,
        "EndTime": view.ended,
    }
    if not view.reason:
        del lines["Reason"]
    width = max(map(len, lines)) + (3 if is_arena() else 2)
    for key, value in lines.items():
        print(f"{key + ':':{width}}{value}".rstrip())
    print("\nInstances:")
    rows = [
        [
            instance.name,
            instance.status,
            format_age(instance.age_s),
            str(instance.is_primary).lower(),
            gpu_cell(instance.gpus, kind),
            instance.node or "N/A",
            instance.ip or "N/A",
            str(instance.restarts),
        ]
        for instance in view.instances
    ]
    if rows:
        print_ruled_table(INSTANCE_COLUMNS, rows, wide=wide)
    else:
        print("none")


def _print_gpus(view: JobView, pods: list[dict[str, Any]]) -> None:
    """Print which GPUs the pods of a job have, as their scheduler noted."""
    from gangline.workloads.gpus import GPU_GROUP_ANNOTATION

    notes = {pod["metadata"]["name"]: pod["metadata"].get("annotations") or {} for pod in pods}
    rows = [
        [
            instance.name,
            f"{instance.node or 'N/A'}({instance.node_ip or 'N/A'})",
            str(instance.gpus),
            notes[instance.name].get(GPU_GROUP_ANNOTATION) or "N/A",
        ]
        for instance in view.instances
        if instance.gpus
    ]
    print("\nGPUs:")
    print_table(GPU_COLUMNS, rows)
    print(f"\nAllocated/Requested GPUs of Job: {view.gpus_allocated or 0}/{view.gpus}")


def _print_events(events: list[dict[str, str]]) -> None:
    print("\nEvents:")
    if not events:
        print("none")
        return
    print_table(EVENT_COLUMNS, [[row["source"], row["type"], row["age"], row["message"]] for row in events])
