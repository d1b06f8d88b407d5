"""``gangline top``: GPUs of nodes and of jobs, in arena's columns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gangline.cli.jobs.job_names import complete_job_name
from gangline.cli.options.target import target_options
from gangline.cli.output import (
    Column,
    is_arena,
    print_table,
    print_text,
    print_value,
    render_table,
    say,
    terminal_width,
)
from gangline.cli.subcommands import Subcommands
from gangline.client.target import ClusterTarget, open_client
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.client.node_view import NodeGpuView
    from gangline.workloads.job_view import JobView

output = click.option(
    "-o", "--output", type=click.Choice(["wide", "json", "yaml"]), default=None, help="Print JSON or YAML."
)


NODE_COLUMNS = (
    Column("NAME", least=16),
    Column("IPADDRESS", rank=2),
    Column("ROLE", rank=3),
    Column("STATUS", rank=1),
    Column("GPU(Total)"),
    Column("GPU(Allocated)"),
)
JOB_COLUMNS = (
    Column("NAMESPACE", least=8),
    Column("NAME", least=16),
    Column("STATUS"),
    Column("TRAINER", rank=3),
    Column("AGE", rank=1),
    Column("GPU(Requested)"),
    Column("GPU(Allocated)"),
    Column("NODE", least=8, rank=2),
)


@click.group("top", cls=Subcommands)
def command() -> None:
    """Show which GPUs nodes have and jobs hold."""


@command.command("node", short_help="show the GPUs of nodes: used, free, unhealthy, who holds what")
@click.argument("names", nargs=-1, metavar="[NODE]...")
@click.option("-d", "--details", is_flag=True, help="Each GPU, its pod, and the matrices of links.")
@output
@target_options(namespace=False)
def node(names: tuple[str, ...], details: bool, output: str | None, target: ClusterTarget) -> None:
    """Show how many GPUs nodes have and how many are given out, and a sign for each: who holds it."""
    asyncio.run(_node(target, names, details=details, output=output))


async def _node(target: ClusterTarget, names: tuple[str, ...], *, details: bool, output: str | None) -> None:
    from gangline.client.jobs.cluster_view import look
    from gangline.client.node_view import node_report, view_nodes

    async with open_client(target) as client:
        found = await look(client)
    found.check_seen("show the nodes")
    nodes = view_nodes(found, names)
    unknown = sorted(set(names) - {row.name for row in nodes})
    if unknown:
        known = ", ".join(row.name for row in view_nodes(found)) or "none"
        raise UserError(f"there is no node `{'`, `'.join(unknown)}`", hint=f"there are {known}")
    if output in ("json", "yaml"):
        print_value([node_report(row) for row in nodes], output)
    elif details:
        print("\n".join("\n".join(_details(row)) for row in nodes))
    else:
        _print_nodes(nodes)


def _print_nodes(nodes: Sequence[NodeGpuView]) -> None:
    from gangline.client.node_view import grid

    has_modes = len({row.mode for row in nodes if row.total}) > 1
    sick = sum(row.unhealthy for row in nodes)
    columns = [*NODE_COLUMNS, *[Column("GPU(Mode)")] * has_modes, *[Column("UNHEALTHY")] * bool(sick)]
    rows = []
    for row in nodes:
        cells = [row.name, row.address or "N/A", row.role, row.status, str(row.total), str(row.allocated)]
        rows.append([*cells, *([row.mode] * has_modes), *([str(row.unhealthy)] * bool(sick))])
    lines = render_table(columns, rows, width=terminal_width())
    print("\n".join(lines))
    print("-" * max(map(len, lines)))
    total, held = sum(row.total for row in nodes), sum(row.allocated for row in nodes)
    kind = " simulated" if any(row.kind == "simulated" for row in nodes) else ""
    print(f"Allocated/Total{kind} GPUs In Cluster:\n{_share(held, total)}")
    if sick:
        print(f"Unhealthy/Total{kind} GPUs In Cluster:\n{_share(sick, total)}")
    width = terminal_width()
    if signs := grid(nodes, None if width is None else width // 3):
        print()
        print_text("GPUs by index (`.` free, `x` unhealthy, `!` held and unhealthy, a letter: its job):")
        print("\n".join(line[:width] for line in signs))
    for row in nodes:
        if row.note:
            print()
            print_text(f"node {row.name}: {row.note}")


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({100 * part / whole if whole else 0:.1f}%)"


def _details(row: NodeGpuView) -> list[str]:
    """Return one node as arena draws a node whose links are known."""
    from gangline.client.node_view import BY_PLUGIN
    from gangline.topology.links import legend

    simulated = "simulated " if row.kind == "simulated" else ""
    lines = [f"{key + ':':9} {value}" for key, value in _heads(row)]
    if row.holders:
        cells = [[one.namespace, one.name, str(one.requested), _indices(one.indices)] for one in row.holders]
        lines += ["Instances:", *_table(("NAMESPACE", "NAME", "GPU(Requested)", "GPU(Allocated)"), cells)]
    if row.gpus:
        names = [f"GPU{gpu.index}" for gpu in row.gpus]
        links = [[name, *cells] for name, cells in zip(names, row.links, strict=True)]
        rates = [
            [name, *(f"{rate:.1f}" if rate else "-" for rate in cells)]
            for name, cells in zip(names, row.bandwidths, strict=True)
        ]
        states = [
            [
                str(gpu.index),
                "using" if gpu.holder else "idle",
                "healthy" if gpu.healthy else "unhealthy",
                gpu.holder or "-",
            ]
            for gpu in row.gpus
        ]
        lines += ["LinkTypeMatrix:", *_table(("", *names), links)]
        if text := legend(row.links):
            lines += [f"  ({text})"]
        lines += ["BandwidthMatrix (predicted, GB/s one way):", *_table(("", *names), rates)]
        lines += ["GPUs:", *_table(("INDEX", "STATUS", "HEALTHY", "INSTANCE"), states)]
    elif row.chooser:
        lines += [f"GPUs: {row.allocated} of {row.total} held; {BY_PLUGIN}"]
        lines += ["      (no annotation gangline.dev/gpu-topology that could be read: links are not known)"]
    lines += [
        "GPU Summary:",
        f"  Total {simulated}GPUs:     {row.total}",
        f"  Allocated {simulated}GPUs: {row.allocated}",
        f"  Unhealthy {simulated}GPUs: {row.unhealthy}",
        "",
    ]
    return lines


def _heads(row: NodeGpuView) -> list[tuple[str, str]]:
    return [
        ("Name", row.name),
        ("Status", row.status),
        ("Role", row.role),
        ("Type", f"{row.mode} ({row.note})" if row.note else row.mode),
        ("Model", f"simulated {row.model}" if row.kind == "simulated" else row.model or "N/A"),
        ("Address", row.address or "N/A"),
        ("Has", ", ".join(f"{count} {name}" for name, count in row.resources.items()) or "no GPU"),
    ]


def _indices(indices: Sequence[int] | None) -> str:
    return "by the device plugin" if indices is None else ",".join(map(str, indices))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an indented table with arena's row of dashes."""
    dashes = ["-" * len(title) for title in titles]
    columns = [Column(title, least=12 if title in ("NAME", "NODE") else 0) for title in titles]
    width = None if is_arena() else terminal_width()
    lines = render_table(columns, [dashes, *rows], width=None if width is None else width - 2)
    return [f"  {line}" for line in lines]


@command.command("job", short_help="show the GPUs of jobs, or of one job pod by pod")
@click.argument("name", required=False, shell_complete=complete_job_name)
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@output
@target_options()
def job(name: str | None, all_namespaces: bool, output: str | None, target: ClusterTarget) -> None:
    """Show how many GPUs jobs ask for and hold, the largest first; of one job which GPU each pod has."""
    if name and all_namespaces:
        raise UserError(
            f"-A is for all jobs; `{name}` is one", hint="name its namespace with -n, or leave the name out"
        )
    asyncio.run(_job(target, name, all_namespaces=all_namespaces, output=output))


async def _job(target: ClusterTarget, name: str | None, *, all_namespaces: bool, output: str | None) -> None:
    from gangline.client.jobs.cluster_view import look
    from gangline.client.jobs.job_lookup import find_job, list_jobs
    from gangline.client.node_view import view_nodes
    from gangline.clock import now
    from gangline.workloads.job_state import pods_by_job
    from gangline.workloads.job_view import view_job

    async with open_client(target) as client:
        namespace = None if all_namespaces else client.connection.namespace
        jobs = [(await find_job(client, name, namespace or ""))[1]] if name else []
        jobs = jobs or await list_jobs(client, namespace)
        found = await look(client)
    members = pods_by_job(jobs, found.pods)
    views = [view_job(job, own, now()) for job, own in zip(jobs, members, strict=True)]
    nodes = view_nodes(found)
    kind = next((row.kind for row in nodes if row.kind), "")
    indices = {f"{holder.namespace}/{holder.name}": holder.indices for row in nodes for holder in row.holders}
    if output in ("json", "yaml"):
        rows = [_job_report(view, kind, indices) for view in views]
        print_value(rows[0] if name else rows, output)
    elif name:
        _print_job(views[0], indices)
    else:
        _print_jobs(views, kind, all_namespaces=all_namespaces)


def _job_report(view: JobView, kind: str, indices: dict[str, tuple[int, ...] | None]) -> dict[str, Any]:
    from gangline.workloads.job_view import job_report

    value = job_report(view, kind)
    for instance in value["instances"]:
        found = indices.get(f"{view.namespace}/{instance['name']}")
        instance["gpuIndices"] = list(found) if found is not None else None
    return value


def _print_jobs(views: Sequence[JobView], kind: str, *, all_namespaces: bool) -> None:
    from gangline.units import format_age

    if not views:
        say("no jobs")
        return
    ordered = sorted(views, key=lambda view: (-view.gpus, view.namespace, view.name))
    rows = [
        [
            view.namespace,
            view.name,
            view.status,
            view.trainer,
            format_age(view.duration_s),
            str(view.gpus),
            "N/A" if view.gpus_allocated is None else str(view.gpus_allocated),
            view.node or "N/A",
        ]
        for view in ordered
    ]
    skip = 0 if all_namespaces else 1
    print_table(JOB_COLUMNS[skip:], [row[skip:] for row in rows])
    held = sum(view.gpus_allocated or 0 for view in views)
    asked = sum(view.gpus for view in views if view.gpus_allocated is not None)
    simulated = " simulated" if kind == "simulated" else ""
    print(f"\nTotal Allocated/Requested{simulated} GPUs of Training Jobs: {held}/{asked}")


def _print_job(view: JobView, indices: dict[str, tuple[int, ...] | None]) -> None:
    from gangline.units import format_age

    heads = (
        ("Name", view.name),
        ("Status", view.status),
        ("Namespace", view.namespace),
        ("Priority", view.priority or "N/A"),
        ("Trainer", view.trainer),
        ("Duration", format_age(view.duration_s)),
    )
    print("\n".join(f"{key + ':':11} {value}" for key, value in heads))
    print("\nInstances:")
    rows = []
    for one in view.instances:
        found = indices.get(f"{view.namespace}/{one.name}")
        given = "N/A" if found is None else ",".join(map(str, found))
        rows.append([one.name, one.status, str(one.gpus), one.node or "N/A", given])
    print("\n".join(_table(("NAME", "STATUS", "GPU(Request)", "NODE", "GPU(DeviceIndex)"), rows)))
