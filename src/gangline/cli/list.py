"""``gangline list``: one line for each job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from gangline.cli.options.job_types import type_option
from gangline.cli.options.target import target_options
from gangline.cli.output import Column, is_arena, output_option, print_table, print_value, say
from gangline.client.target import ClusterTarget, open_client

if TYPE_CHECKING:
    from gangline.workloads.job_view import JobView

COLUMNS = (
    Column("NAMESPACE", least=8, rank=5),
    Column("NAME"),
    Column("STATUS"),
    Column("TRAINER", rank=4),
    Column("DURATION", rank=2),
    Column("GPU(Requested)", rank=6),
    Column("GPU(Allocated)", rank=7, wide=True),
    Column("NODE", least=8, rank=3),
    Column("REASON", least=32, rank=1, wide=True),
)
"""A row of short names has 80 characters at most."""
ARENAS_COLUMNS = (*COLUMNS[:6], Column("GPU(Allocated)", rank=7), *COLUMNS[7:])


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@type_option
@output_option
@target_options()
def command(all_namespaces: bool, kind: str, output: str | None, target: ClusterTarget) -> None:
    """List jobs with their status, duration and GPUs; why one waits is in `-o wide`."""
    asyncio.run(_list(target, all_namespaces=all_namespaces, only=kind, output=output))


async def _list(target: ClusterTarget, *, all_namespaces: bool, only: str, output: str | None) -> None:
    from gangline.client.jobs.gpu_kind import gpu_kind
    from gangline.client.jobs.listing import read_jobs
    from gangline.workloads.job_view import job_report

    async with open_client(target) as client:
        namespace = None if all_namespaces else client.connection.namespace
        needs_reasons = output in ("wide", "json", "yaml")
        jobs, views = await read_jobs(client, namespace, only=only, with_reasons=needs_reasons)
        kind = await gpu_kind(client, jobs)
    if output == "name":
        print("".join(f"{view.kind.lower()}/{view.name}\n" for view in views), end="")
    elif output in ("json", "yaml"):
        print_value([job_report(view, kind) for view in views], output)
    elif not views:
        say(f"no jobs in {'any namespace' if all_namespaces else f'namespace `{namespace}`'}")
    else:
        rows = [_row(view, kind) for view in views]
        skip = 0 if all_namespaces else 1
        columns = ARENAS_COLUMNS if is_arena() else COLUMNS
        print_table(columns[skip:], [row[skip:] for row in rows], wide=output == "wide")


def _row(view: JobView, kind: str) -> list[str]:
    from gangline.client.jobs.gpu_kind import gpu_cell
    from gangline.units import format_age

    return [
        view.namespace,
        view.name,
        view.status,
        view.trainer,
        format_age(view.duration_s),
        gpu_cell(view.gpus, kind),
        gpu_cell(view.gpus_allocated, kind),
        view.node or "N/A",
        view.reason,
    ]
