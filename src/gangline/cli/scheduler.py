"""``gangline scheduler``: the scheduler alone, against any Kubernetes API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click


@click.command("scheduler")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Kubeconfig of the cluster.  [default: the pod's own account inside a cluster, else yours]",
)
@click.option("--context", metavar="CONTEXT", help="A context of the kubeconfig.")
@click.option(
    "--levels",
    default="",
    metavar="LABEL,...",
    help="Node labels of the network's levels, the widest first: example.com/block,example.com/rack.",
)
def command(kubeconfig: Path | None, context: str | None, levels: str) -> None:
    """Run the scheduler against a cluster until SIGTERM: it binds pods that name gangline-scheduler."""
    from gangline.topology.network import parse_levels

    asyncio.run(_serve(kubeconfig, context, tuple(level.label for level in parse_levels(levels))))


async def _serve(kubeconfig: Path | None, context: str | None, levels: tuple[str, ...]) -> None:
    from gangline.cli.serve import run_until_stopped
    from gangline.cli.service import service_connection
    from gangline.kube.client import Client
    from gangline.placement.policy import Policy
    from gangline.scheduler.scheduler import DEFAULT_NAMES, Scheduler

    async with Client(service_connection(kubeconfig, context), user_agent="gangline-scheduler") as client:
        scheduler = Scheduler(client, names=DEFAULT_NAMES[:1], policy=Policy(levels=levels))
        await run_until_stopped(scheduler.run())
